"""Advantages with a critic: its values are unknown, and found with the weights they explain.

The values of the probe's few states, of its states at each time, or of all states that an episode
has met are the only unknowns, so they can be fitted to the gradients of all paths; if the fit
leaves nothing, the program computes this advantage with those values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import product

import numpy as np

from eligibility.audit.arrays import Array, Integers
from eligibility.audit.job import STATES
from eligibility.audit.judgement.carried import CARRIED, RULE, carried_advantage
from eligibility.audit.judgement.catalogue import Candidate
from eligibility.audit.judgement.entropy import entropy_columns
from eligibility.audit.judgement.evidence import Evidence, histories
from eligibility.audit.judgement.spread import with_epsilon
from eligibility.audit.judgement.timeline import Timeline

# How the end of an episode enters the advantage, the right way first.
ENDINGS = ("", "truncation-as-termination", "bootstrapped-after-termination")
# A baseline that was moved towards the batch's own returns before it is subtracted: their mean, or
# that of its episodes' returns, discounted or not. Its one unknown is how far.
OWN_RETURN = "baseline-sees-own-return"
OWN = ("own-mean", "own-return", "own-reward")
# Returns [T] minus values [T, 1]: every return meets every value; "-summed" over the actions too.
CROSSED = ("crossed", "crossed-summed", "crossed-after-transform")
AFTER_TRANSFORM = ("return-after-transform", CROSSED[2])  # whitened, and then minus V(s)
BY_COUNT = "limit-told-by-count"  # who terminates at the very step of the limit is cut off
AT_BATCH_END = "batch-end-told-by-count"  # who terminates at the last step of a batch is cut off
# V = 0 behind the last step of a batch, as if the episode ended there; time limits perhaps too.
CUT = "return-cut-at-update"
BEHIND_BATCH = (CUT, f"{CUT} and {ENDINGS[1]}")
HERE = "bootstrapped-from-here"  # V(s) in the place of V(s') too: no later reward is in it
ACTION_VALUE = "action-value"  # Q(s, a) of the critic, and no reward
AFFINE = ("", "centred", "leave-one-out", "centred-so-far")
_REFINEMENTS, _PROMISING = 6, 0.1  # steps of a fit's refinement, and the residual that allows them
_MOVE = 1e-5  # of a value or of ε, for the slopes that the refinement goes by


@dataclass(frozen=True)
class Advantage:
    """A composition whose credits a critic's values have entered.

    Σ_{k ≥ t} (γλ)^(k−t) (r_k + γ V(s_{k+1}) − V(s_k)) (Schulman et al. 2016), perhaps plus V(s_t),
    or the composition's own credit minus V(s).

    Attributes:
        form: Everything but the values.
        ending: One of ``ENDINGS``, ``CARRIED``, ``BY_COUNT``, ``AT_BATCH_END`` or ``HERE``; or,
            without bootstrap, "return": the credit minus V(s), one of ``AFTER_TRANSFORM``, of
            ``CROSSED``, ``ACTION_VALUE``, or one of ``OWN``: minus a share of itself.
        decay: λ.
        of: What the values depend on: "state", "time" for V(s, t), or "history" for V(s₀, …, s_t).
        baseline: Whether V(s) is subtracted from a bootstrapped return.
    """

    form: Candidate
    ending: str
    decay: float
    of: str = "state"
    baseline: bool = True

    @property
    def discount(self) -> float:
        """γ."""
        return self.form.discount

    @property
    def norm(self) -> str:
        """What the sum is divided by."""
        return self.form.norm

    @property
    def faults(self) -> tuple[str, ...]:
        """Its parts that are wrong in themselves."""
        known = {ending: ending for ending in ENDINGS[1:]}
        known |= dict.fromkeys(OWN, OWN_RETURN) | dict.fromkeys(CROSSED, "broadcast")
        known |= dict.fromkeys(CARRIED, RULE) | {HERE: "immediate-reward"}
        known[BEHIND_BATCH[1]] = ENDINGS[1]
        return self.form.faults + ((known[self.ending],) if self.ending in known else ())

    @property
    def conventions(self) -> tuple[str, ...]:
        """Its parts that people choose on purpose."""
        if self.ending in OWN:
            return self.form.conventions
        estimated = "gae" if 0.0 < self.decay < 1.0 else "bootstrapped"
        subtracted = self.ending.startswith("return") or self.ending in CROSSED
        count = (BY_COUNT,) if self.ending in (BY_COUNT, AT_BATCH_END) else ()
        count = (CUT,) if self.ending in BEHIND_BATCH else count
        return ("baseline" if subtracted else estimated, *count, *self.form.conventions)

    @property
    def without_spread(self) -> Advantage:
        """The same without a division by a standard deviation: affine in the values."""
        if is_affine(self):
            return self
        centred = self.form.transform.startswith("whitened")
        return replace(self, form=replace(self.form, transform="centred" if centred else ""))

    def places(self, evidence: Evidence) -> tuple[Integers, Integers, int]:
        """[P, I] index of the value before each action, and after it; and how many there are."""
        if self.ending in OWN:
            return np.zeros_like(evidence.state), np.zeros_like(evidence.state), 1
        if self.ending == ACTION_VALUE:
            pairs = evidence.state + (STATES + 1) * evidence.action
            return pairs, pairs, int(pairs.max(initial=0)) + 1
        if self.of == "state":
            return evidence.state, evidence.next_state, STATES + 1
        if self.of == "history":
            return histories(evidence)
        late = evidence.time + 1
        before = evidence.state + (STATES + 1) * evidence.time
        after = evidence.next_state + (STATES + 1) * late
        return before, after, (STATES + 1) * (int(late.max(initial=0)) + 1)

    def weights(self, evidence: Evidence, line: Timeline, values: Array) -> Array:
        """[P, I] the reinforcement of each action for ``values``, which `places` numbers."""
        if self.ending in AFTER_TRANSFORM:
            own = self.form.credit.of(line, self.discount)
            here = values[self.places(evidence)[0]]
            here = line.mean(here, "batch") if self.ending in CROSSED else here
            plain = replace(self.form, transform="")
            return self.form.finished(own, line) - plain.finished(here * line.present, line)
        return self.form.finished(self.credits(evidence, line, values), line)

    def credits(self, evidence: Evidence, line: Timeline, values: Array) -> Array:
        """[P, I] what each action is credited with for ``values``, before the transform."""
        before, after, _ = self.places(evidence)
        here = values[before]
        if self.ending in OWN:
            credit = self.form.credit.of(line, self.discount)
            credit = credit - here * _own_return(line, self.ending, credit, self.discount)
        elif self.ending == "return":
            credit = self.form.credit.of(line, self.discount) - here
        elif self.ending in CROSSED:
            credit = self.form.credit.of(line, self.discount) - line.mean(here, "batch")
            if self.ending == CROSSED[1]:
                credit = credit * line.count("batch")
        elif self.ending == ACTION_VALUE:
            credit = here
        elif self.ending in CARRIED:
            factors = self.discount * np.array([1.0, self.decay])
            form, there = CARRIED[self.ending], values[after]
            credit = carried_advantage(form, evidence, line, here, there, factors)
        else:
            cut = evidence.time == evidence.time[evidence.truncated].max(initial=-1)
            last = line.following_of_actor < 0
            ended = {
                "": evidence.terminated,
                HERE: evidence.terminated,
                BY_COUNT: evidence.terminated & ~cut,
                AT_BATCH_END: evidence.terminated & ~last,
                BEHIND_BATCH[0]: evidence.terminated | last,
                BEHIND_BATCH[1]: evidence.terminated | evidence.truncated | last,
                "truncation-as-termination": evidence.terminated | evidence.truncated,
                "bootstrapped-after-termination": np.zeros_like(evidence.terminated),
            }[self.ending]
            following = np.where(ended, 0.0, here if self.ending == HERE else values[after])
            delta = evidence.reward + self.discount * following - here
            credit = line.accumulated(delta * line.present, self.discount * self.decay)
            credit = credit if self.baseline else credit + here
        present: Array = credit * line.present
        return present


def _own_return(line: Timeline, kind: str, credit: Array, discount: float) -> Array:
    """[P, I] the mean over the batch: of its credits, or of its episodes' returns."""
    if kind == "own-mean":
        return line.mean(credit, "batch")
    whole = line.episode_return(discount if kind == "own-return" else 1.0)
    episodes = np.maximum(line.episodes, 1)[:, None]
    return line.total(whole / np.maximum(line.length, 1), "batch") / episodes


@dataclass(frozen=True)
class Fit:
    """An advantage with the values that explain the program's gradients.

    Attributes:
        advantage: The form.
        values: The critic's values, by the numbers of ``advantage.places``.
        scale: The constant factor.
        entropy: Factor of the entropy's gradient, relative to ``scale``.
        residual: ‖gradient − explanation‖ / ‖gradient‖ over all paths.
    """

    advantage: Advantage
    values: Array
    scale: float
    entropy: float
    residual: float


def fit_advantage(
    evidence: Evidence,
    line: Timeline,
    form: Advantage,
    tolerance: float,
    scale: float | None = None,
) -> Fit | None:
    """The values with which ``form`` comes closest to the gradients, its factor perhaps known.

    The entropy's gradient enters only where the fit without it is not within ``tolerance``.
    """
    solve = partial(_linear_fit, known=scale) if is_affine(form) else _fit_over_spread
    fit = solve(evidence, line, form, tolerance)
    for _ in range(_REFINEMENTS if form.form.divides else 0):
        if fit is None or not tolerance <= fit.residual < _PROMISING:
            break
        form, values = _refined(evidence, line, fit)
        bonus = entropy_columns(evidence, line, form.norm)
        fit = _scaled_fit(evidence, line, form, values, tolerance, ((), bonus))
    return fit


def spare_equations(evidence: Evidence, line: Timeline, form: Advantage) -> int:
    """How many different weights there are beyond the unknowns that they are explained by."""
    form = replace(form, form=replace(form.form, transform=""))
    plain, *others = [form.weights(evidence, line, unit) for unit in _units(evidence, form)]
    moves = [each - plain for each in others]
    rows = np.stack([column[evidence.present] for column in (plain, *moves)], axis=1)
    return len(np.unique(rows.round(9), axis=0)) - int(np.linalg.matrix_rank(rows))


def _gradient(evidence: Evidence, weights: Array) -> Array:
    flat: Array = evidence.gradient(weights).ravel()
    return flat


@lru_cache(maxsize=512)
def _credits_of_units(evidence: Evidence, line: Timeline, form: Advantage) -> Array:
    """[V, P, I] the credits without values, then with each alone 1: the same for all transforms."""
    return np.stack([form.credits(evidence, line, values) for values in _units(evidence, form)])


def _units(evidence: Evidence, form: Advantage) -> list[Array]:
    size = form.places(evidence)[2]
    return [np.zeros(size), *np.eye(size)]


@lru_cache(maxsize=32)
def linear_columns(evidence: Evidence, line: Timeline, form: Advantage) -> list[Array]:
    """The gradients that a form whose weights are affine in the values is a sum of.

    At first the one without values, then one for each value, then a constant.
    """
    after = form.ending in AFTER_TRANSFORM
    bare = replace(form, form=Candidate(form.form.credit, form.discount, False, "", "", "", ""))
    if after:
        units = _units(evidence, form)
        weights = np.stack([form.weights(evidence, line, values) for values in units])
    else:
        weights = form.form.finished(_credits_of_units(evidence, line, bare), line)
    weights[1:] -= weights[0]
    gradients = weights.transpose(1, 0, 2) @ evidence.eligibility  # [P, V, D]
    columns = list(gradients.transpose(1, 0, 2).reshape(len(weights), -1))
    # a constant baseline next to the critic's, subtracted where the values are
    outside = replace(form.form, transform="") if after else form.form
    columns.append(_gradient(evidence, outside.finished(line.present.astype(float), line)))
    return columns


def is_affine(form: Advantage) -> bool:
    """Whether its weights are affine in the critic's values."""
    return form.form.transform in AFFINE or form.ending in AFTER_TRANSFORM


def _linear_fit(
    evidence: Evidence, line: Timeline, form: Advantage, tolerance: float, known: float | None
) -> Fit | None:
    """Without a transform the weights are affine in the values: one least-squares problem."""
    columns, target = linear_columns(evidence, line, form), evidence.ascent.ravel()
    if not np.isfinite(columns).all():
        return None  # a leave-one-out mean of one
    size, values = float(np.linalg.norm(target)), len(columns) - 2

    def solved(added: Sequence[Array]) -> tuple[Array, float]:
        matrix = np.array([*columns, *added]).T
        first, given = (0, 0.0) if known is None else (1, known * columns[0])
        rest = np.linalg.lstsq(matrix[:, first:], target - given, rcond=1e-11)[0]
        solution = rest if known is None else np.array([known, *rest])
        return solution, float(np.linalg.norm(target - matrix @ solution)) / size

    solution, residual = solved(entropy_columns(evidence, line, form.norm))
    if residual < tolerance and (without := solved(()))[1] < tolerance:
        solution, residual = without
    scale = 1.0 if form.ending == ACTION_VALUE else float(solution[0])
    own = solution[1:] / (scale or 1.0)
    return Fit(form, own[:values], scale, float(own[values + 1 :].sum()), residual)


def _fit_over_spread(
    evidence: Evidence, line: Timeline, form: Advantage, tolerance: float
) -> Fit | None:
    """With a standard deviation they are not, but its size does not turn a path's gradient.

    So only directions are compared: what is not along the gradient of a path, nor along its
    entropy's if that is needed, must vanish, and that is affine in the values.
    """
    columns = entropy_columns(evidence, line, form.norm)
    fits: list[Fit] = []
    for bonus in (False, True):  # little is left across both: without a bonus it may be closer
        values = _values_across(evidence, line, form.without_spread, bonus)
        if values is None:
            return None
        undivided = form.form.undivided(form.credits(evidence, line, values), line)
        own = with_epsilon(form.form, undivided, evidence, line)
        forms = dict.fromkeys((form.form, own))
        weights = [each.divided(*undivided, line) for each in forms]
        for added, (each, its) in product(((), columns), zip(forms, weights, strict=True)):
            advantage = replace(form, form=each)
            fit = _scaled_fit(evidence, line, advantage, values, tolerance, (added,), its)
            if fit is not None and fit.residual < tolerance:
                return fit
            fits += [] if fit is None else [fit]
    return min(fits, key=lambda fit: fit.residual, default=None)


@lru_cache(maxsize=512)
def _values_across(
    evidence: Evidence, line: Timeline, form: Advantage, bonus: bool
) -> Array | None:
    """The values that leave least across each path's gradient; one answer for all deviations."""
    columns = linear_columns(evidence, line, form)[:-1]
    if not np.isfinite(columns).all():
        return None
    entropy = entropy_columns(evidence, line, form.norm) if bonus else ()
    target, shape = evidence.ascent, evidence.ascent.shape
    known = np.stack([target, *(column.reshape(shape) for column in entropy)], axis=-1)
    known = known / np.maximum(np.linalg.norm(known, axis=1, keepdims=True), 1e-300)
    inverse = np.linalg.pinv(known, rcond=1e-9)  # [P, directions known, D]
    moves = np.any(target, axis=1)[:, None, None]  # not where all credits are equal
    rest = []
    for column in columns:
        of_path = column.reshape(*shape, 1)
        rest.append((moves * (of_path - known @ (inverse @ of_path))).ravel())
    matrix = np.array(rest[1:]).T
    return np.asarray(np.linalg.lstsq(matrix, -rest[0], rcond=1e-11)[0])


def _scaled_fit(
    evidence: Evidence,
    line: Timeline,
    form: Advantage,
    values: Array,
    tolerance: float,
    entropies: Sequence[Sequence[Array]],
    weights: Array | None = None,
) -> Fit | None:
    """The fit of known values: only its scale and the share of the first entropies that do."""
    if weights is None:
        weights = form.weights(evidence, line, values)
    if not np.isfinite(weights).all():
        return None
    column, goal = _gradient(evidence, weights), evidence.ascent.ravel()
    for added in entropies:
        both = np.stack([column, *added], axis=1)
        factors: Array = np.asarray(np.linalg.lstsq(both, goal, rcond=1e-11)[0])
        residual = float(np.linalg.norm(goal - both @ factors) / np.linalg.norm(goal))
        if residual < tolerance:
            break
    scale = float(factors[0])
    return Fit(form, values, scale, float(factors[1:].sum()) / (scale or 1.0), residual)


def _refined(evidence: Evidence, line: Timeline, fit: Fit) -> tuple[Advantage, Array]:
    """The form and its values after one step of Gauss and Newton's in values, ε, λ and scale."""
    form, values = fit.advantage, fit.values
    between = 0.0 < form.decay < 1.0

    def moved_by(by: Array) -> tuple[Advantage, Array]:
        epsilon, decay = form.form.epsilon + float(by[-2]), form.decay + between * float(by[-1])
        own = replace(form, form=replace(form.form, epsilon=epsilon), decay=decay)
        return own, values + by[:-2]

    def gradient(by: Array) -> Array:
        own, its_values = moved_by(by)
        return _gradient(evidence, own.weights(evidence, line, its_values))

    units = _MOVE * np.eye(len(values) + 2)
    slopes = [(gradient(unit) - gradient(-unit)) / (2.0 * _MOVE) for unit in units]
    columns = [gradient(np.zeros(len(units))), *slopes]
    matrix = np.array([*columns, *entropy_columns(evidence, line, form.norm)]).T
    if not np.isfinite(matrix).all():
        return form, values
    solution = np.linalg.lstsq(matrix, evidence.ascent.ravel(), rcond=1e-11)[0]
    by = solution[1 : len(units) + 1] / (float(solution[0]) or 1.0)
    by[-2] = max(float(by[-2]), -form.form.epsilon)
    return moved_by(by)
