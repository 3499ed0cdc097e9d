"""Finds the composition that explains every path, and the weights that the program really gave."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import product

import numpy as np

from eligibility.audit.arrays import Array, Booleans
from eligibility.audit.job import STATES
from eligibility.audit.judgement import searches
from eligibility.audit.judgement.advantage import ACTION_VALUE, Advantage, is_affine
from eligibility.audit.judgement.catalogue import Candidate, Told, norm_factor
from eligibility.audit.judgement.constants import Constants
from eligibility.audit.judgement.critic import Fit, fit_advantage
from eligibility.audit.judgement.entropy import entropy_columns
from eligibility.audit.judgement.evidence import Evidence
from eligibility.audit.judgement.match import (
    SHARE,
    Match,
    determined,
    overdetermined,
    tells_actions_apart,
    tells_states_apart,
)
from eligibility.audit.judgement.searches import Search
from eligibility.audit.judgement.spread import least_left, with_epsilon
from eligibility.audit.judgement.timeline import Timeline, timeline

# Only the last episode of a batch is used: one that has ended, or one that the update cuts.
_LAST, RUNNING = "last-episodes", "running-episodes"
_Accept = Callable[["Match", Timeline], bool]
# Number of paths that a composition must explain before all are tried; fewer if they are long, but
# enough to leave equations over beyond a critic's values.
_SAMPLE, _SAMPLED_STEPS, _EQUATIONS = 16, 1000, 48
_LARGER_SAMPLE = 64  # where only directions are compared, which tells less
_SAME_FACTOR = 1e-12  # relative difference below which two are one
_BONUS = 1e-6  # share of the gradient that an entropy's has if it is no coincidence
_LEFT = 1e-3  # of a smaller one: how much a right rule leaves at most
_LITTLE = 1e-3  # of a reward, for slopes
_AGREES = 1e-3  # share of the measured credit that may be another one's
# Searches in which only what is overdetermined counts.
_LOOSE = (
    searches.fitted_critics, searches.own_returns, searches.noisy_critics, searches.crossed
)  # fmt: skip


def find_match(
    evidence: Evidence, constants: Constants, tolerance: float, critic: str
) -> Match | None:
    """The plainest composition within ``tolerance``, or None.

    Args:
        evidence: What was observed.
        constants: Numbers that the program may mean.
        tolerance: Residuals below it are rounding.
        critic: Whether values may enter: of "no" critic, of one that is "fitted" without an
            optimizer, where none without values was found, or of one that an optimizer "trained".
    """
    parts = [(use, evidence.restricted(mask)) for use, mask in uses(evidence)]
    parts = [(use, part) for use, part in parts if within_reach(part, tolerance)]
    long = evidence.long
    values: tuple[Search, ...] = ()
    if critic != "no":
        values = (searches.baselines, searches.own_returns)
    if critic == "trained":
        own = constants.told is not None and ACTION_VALUE in constants.told.rules
        more = (searches.advantages, searches.unusual, searches.crossed, searches.carried)
        values = (searches.action_values,) if own else (*values, *more)
        if not own and not long and timeline(evidence).is_cut(evidence):
            values = (*values, searches.cut_batches)
    elif critic == "fitted" and not long:
        values = (*values, searches.fitted_critics, searches.crossed)
    noisy = critic != "no" and not long and evidence.remembers
    memory = (searches.noisy_critics,) if noisy else ()
    plain = () if critic == "fitted" else (searches.plain,)
    refused: dict[str, set[Candidate | Advantage]] = defaultdict(set)
    # a standard deviation of one element, or of equal ones, explains nothing
    with np.errstate(all="ignore"):
        for search, (use, part) in product((*plain, *values, *memory), parts):
            accept = (
                partial(overdetermined, part) if search in _LOOSE else (lambda match, line: True)
            )
            if search is searches.action_values:
                accept = partial(tells_actions_apart, part)
            elif use in (_LAST, RUNNING):  # its few decisions leave little to tell an entropy by
                accept = partial(_without_entropy, part)
            match = _plainest(part, use, search, constants, tolerance, accept, refused[use])
            if match is None:
                continue
            if critic == "trained" and not match.faultless:
                return _without_fault(parts, values, constants, tolerance, match, refused) or match
            return match
    return None


def within_reach(evidence: Evidence, tolerance: float) -> bool:
    """Whether some reinforcement of its decisions, whatever it is, explains the gradients.

    What no sum over a path's decisions comes within ``tolerance`` of, with an entropy bonus if need
    be, no composition explains.
    """
    line = timeline(evidence)
    norms = "", "mean-over-each-episode"  # along the others the entropy of a path points as by ""
    weights = np.stack([norm_factor(norm, line) * line.present for norm in norms])
    bonus = np.einsum("npi,pid->pnd", weights, evidence.entropy)
    spanning = np.concatenate([evidence.eligibility, bonus], axis=1)  # [P, I + 2, D]
    if not np.isfinite(spanning).all() or not np.isfinite(evidence.ascent).all():
        return True
    _, sizes, rows = np.linalg.svd(spanning, full_matrices=False)
    least = np.finfo(float).eps * max(spanning.shape[1:]) * sizes.max(axis=1, initial=0.0)
    rows = rows * (sizes > least[:, None])[..., None]
    along = np.einsum("pr,prd->pd", np.einsum("prd,pd->pr", rows, evidence.ascent), rows)
    left, size = np.linalg.norm(evidence.ascent - along), np.linalg.norm(evidence.ascent)
    return bool(left < tolerance * size)


def _without_entropy(evidence: Evidence, match: Match, line: Timeline) -> bool:
    """Whether a match needs none, and has fewer values than weights that they explain."""
    with_values = isinstance(match.form, Advantage)
    return not match.entropy and (not with_values or overdetermined(evidence, match, line))


def _without_fault(
    parts: Sequence[tuple[str, Evidence]],
    tried: Sequence[Search],
    constants: Constants,
    tolerance: float,
    faulty: Match,
    refused: dict[str, set[Candidate | Advantage]],
) -> Match | None:
    """A match of advantages without a fault, whose values tell the states apart.

    Short rollouts can be explained in several ways: then nothing speaks for the one with a fault,
    unless the other one needs an entropy that it does without.
    """
    for search, (use, part) in product(tried, parts):
        accept = partial(tells_states_apart, part, faulty.entropy != 0.0, constants)
        faultless = searches.without_faults(search)
        match = _plainest(part, use, faultless, constants, tolerance, accept, refused[use])
        if match is not None:
            return match
    return None


def _plainest(
    evidence: Evidence,
    use: str,
    search: Search,
    constants: Constants,
    tolerance: float,
    accept: _Accept,
    refused: set[Candidate | Advantage],
) -> Match | None:
    """The first composition that fits; of equally plain ones, one without a fault of scale ±1.

    Only matches that ``accept`` says yes to count. On episodes of two steps, G_0 is what a
    broadcast gives at half the γ; where all episodes are equally long, a mean is a sum times a
    constant: then the scale decides. What is found not to fit joins ``refused``.
    """
    few, some = (evidence.where(_few(evidence, most)) for most in (_SAMPLE, _LARGER_SAMPLE))
    few_line, some_line, all_ = timeline(few), timeline(some), timeline(evidence)
    best: Match | None = None
    least = True, True
    measured = constants.told is not None and constants.told.credit is not None
    for form in search(all_, constants):
        if best is not None and form.form.involved > best.plain.involved:
            break
        affine = not isinstance(form, Advantage) or is_affine(form)
        sample, line = (few, few_line) if affine else (some, some_line)
        known = _alike(form, line)
        if known in refused or fitted(sample, line, form, use, tolerance) is None:
            refused.add(known)
            continue
        match = fitted(evidence, all_, form, use, tolerance)
        if match is not None and not use:
            match = _borne_out(evidence, all_, match, constants, tolerance)
        if match is None or not accept(match, all_) or _only_rounding(evidence, all_, match):
            continue
        if not determined(evidence, all_, match, measured):
            continue
        unlike = bool(form.faults), abs(abs(match.scale) - 1.0) >= max(1e-6, tolerance)
        if not any(unlike):
            return match
        if best is None or unlike < least:
            best, least = match, unlike
    return best


def _only_rounding(evidence: Evidence, line: Timeline, match: Match) -> bool:
    """Whether its entropy is small, and leaves much of its size: it makes up for another rule."""
    columns = entropy_columns(evidence, line, match.plain.norm)
    size = abs(match.entropy * match.scale) * max(map(np.linalg.norm, columns), default=0.0)
    whole = np.linalg.norm(evidence.ascent)
    return bool(0.0 < size < _BONUS * whole and match.residual * whole > _LEFT * size)


def _alike(form: Candidate | Advantage, line: Timeline) -> Candidate | Advantage:
    """The composition that a sum, a mean over steps and one over episodes share on these paths.

    They do where all paths are equally long: what refuses one there refuses all of them.
    """
    if not form.form.norm or not _is_constant(form.form.norm, line):
        return form
    summed = replace(form.form, norm="")
    return summed if isinstance(form, Candidate) else replace(form, form=summed)


@lru_cache(maxsize=64)
def _is_constant(norm: str, line: Timeline) -> bool:
    """Whether the sums of all paths are multiplied by the same number."""
    factors = np.broadcast_to(norm_factor(norm, line), line.present.shape)[line.present]
    return bool(np.ptp(factors) <= _SAME_FACTOR * factors.max()) if factors.size else False


def _borne_out(
    evidence: Evidence, line: Timeline, match: Match, constants: Constants, tolerance: float
) -> Match | None:
    """The match with the factor that the measured credit has; None if it has another credit."""
    used = np.asarray(evidence.eligibility.any(axis=(0, 2)))
    scale = measured_scale(match.form, match.values, constants.told, used)
    if np.isnan(scale) or abs(match.scale - scale) <= _AGREES * abs(scale):
        return match if scale else None
    return fitted(evidence, line, match.form, match.use, tolerance, scale) if scale else None


def _few(evidence: Evidence, most: int) -> Booleans:
    """[P] some of the longest paths: enough to refuse a composition."""
    chosen = np.zeros(evidence.paths, dtype=bool)
    steps = evidence.present.sum(axis=1)
    count = min(most, _SAMPLED_STEPS // max(int(steps.max(initial=1)), 1))
    count = max(count, -(-_EQUATIONS // evidence.ascent.shape[1]))
    chosen[np.argsort(-steps, kind="stable")[:count]] = True
    return chosen


def uses(evidence: Evidence) -> Iterator[tuple[str, Booleans]]:
    """Which decisions a program may use: a rollout can end within an episode, or be thrown away."""
    present = evidence.present
    yield "", present
    line = timeline(evidence)
    complete = present & (line.total(evidence.terminated | evidence.truncated, "episode") > 0)
    if (complete != present).any():
        yield "complete-episodes", complete
    first = present & (evidence.episode == 0)
    if first.any() and (first != present).any() and (first != complete).any():
        yield "first-episodes", first
    last = present & (line.segment == line.segment.max(axis=1, keepdims=True, initial=0))
    if line.column.max(initial=0) == 0 and (last != present).any():
        yield RUNNING if (last & ~complete).any() else _LAST, last


def fitted(
    evidence: Evidence,
    line: Timeline,
    form: Candidate | Advantage,
    use: str,
    tolerance: float,
    scale: float | None = None,
) -> Match | None:
    """The match of ``form``, if it explains the gradients within ``tolerance``.

    An advantage that is affine in its values may be given its ``scale``.
    """
    if isinstance(form, Advantage):
        fit = fit_advantage(evidence, line, form, tolerance, scale)
        if fit is None or fit.residual >= tolerance:
            return None
        if form.ending != ACTION_VALUE and _share_of_rewards(evidence, line, fit) < SHARE:
            return None  # the values alone explain it
        return Match(fit.advantage, use, fit.scale, fit.entropy, fit.residual, fit.values)
    if form.divides:
        undivided = form.undivided(form.credit.of(line, form.discount), line)
        if least_left(evidence, line, form, evidence.gradient(undivided[0])) >= tolerance:
            return None
        form = with_epsilon(form, undivided, evidence, line)
    weights = form.weights(line)
    if not np.isfinite(weights).all():
        return None
    column = evidence.gradient(weights).ravel()
    target = evidence.ascent.ravel()
    size, own = float(np.linalg.norm(target)), float(np.linalg.norm(column))
    scale = float(column @ target) / (own**2 or 1.0)
    residual, entropy = float(np.linalg.norm(target - scale * column)) / size, 0.0
    if residual >= tolerance:
        matrix = np.stack([column, *entropy_columns(evidence, line, form.norm)], axis=1)
        factors = np.linalg.lstsq(matrix, target, rcond=1e-11)[0]
        residual = float(np.linalg.norm(target - matrix @ factors)) / size
        scale, entropy = float(factors[0]), float(factors[1:].sum())
    if residual >= tolerance or abs(scale) * own < SHARE * size:
        return None
    return Match(form, use, scale, entropy / scale, residual)


def _share_of_rewards(evidence: Evidence, line: Timeline, fit: Fit) -> float:
    """The gradient that the rewards give without the critic's values, as a share of the whole.

    Before a division by a standard deviation: behind it, credits of any size look alike.
    """
    form, bare = fit.advantage, fit.advantage.without_spread
    credits = (
        bare.weights(evidence, line, np.zeros(form.places(evidence)[2])),
        bare.weights(evidence, line, fit.values),
        form.weights(evidence, line, fit.values),
    )
    alone, valued, own = (float(np.linalg.norm(evidence.gradient(each))) for each in credits)
    return abs(fit.scale) * own * alone / (valued * float(np.linalg.norm(evidence.ascent)) or 1.0)


def effective_weights(evidence: Evidence) -> tuple[Array, Array]:
    """[P, I] the reinforcement that each action got, and [P] the share of the gradient beyond it.

    The least-squares solution of ``−gradient = Σ_i w_i e_i`` on every path, the smallest one where
    two decisions have the same eligibility.
    """
    weights = np.zeros(evidence.present.shape)
    outside = np.zeros(evidence.paths)
    for p in range(evidence.paths):
        here = evidence.present[p]
        basis = evidence.eligibility[p, here].T
        solution = np.linalg.lstsq(basis, evidence.ascent[p], rcond=1e-9)[0]
        weights[p, here] = solution
        size = float(np.linalg.norm(evidence.ascent[p]))
        if size > 0:
            outside[p] = float(np.linalg.norm(evidence.ascent[p] - basis @ solution)) / size
    return weights, outside


def measured_scale(
    form: Candidate | Advantage, values: Array | None, told: Told | None, used: Booleans
) -> float:
    """The factor with which a composition has the measured credit; 0 if none, NaN if unmeasured.

    On few short paths the free values of a critic let a wrong composition, or the right one with
    another factor, fit every gradient.

    Args:
        form: The composition.
        values: The critic's, by state.
        told: What was measured.
        used: [I] decisions that are reinforced at all.
    """
    plain = form.form
    if told is None or told.path is None or plain.divides:
        return float("nan")
    bent = isinstance(form, Advantage) and form.divides_rewards
    moves_weights = told.slopes if bent else told.credit
    if moves_weights is None:
        return float("nan")
    if plain.coupling:  # that all actions get one sum is measured; what is in it depends on lengths
        return float("nan")
    path, present = told.path, told.path.present[0]

    def weights(reward: Array) -> Array:
        other = replace(path, reward=reward[None])
        if isinstance(form, Candidate):
            given: Array = form.weights(timeline(other))
        else:
            known = np.zeros(form.places(other)[2])
            both = min(len(known), 0 if values is None else len(values))
            known[:both] = 0.0 if values is None else values[:both]
            given = form.weights(other, timeline(other), known)
        moves: Array = given[0, present]
        return moves

    units = _LITTLE * np.eye(len(present))[present]
    ways = [[weights(path.reward[0] + sign * unit) for sign in (1.0, -1.0)] for unit in units]
    moved = [(on - back) / (2.0 * _LITTLE) for on, back in ways]
    idle = np.zeros(len(present), dtype=bool)
    idle[: len(used)] = ~used[: len(present)]
    credit = np.array(moved).T
    credit[idle[present]] = 0.0
    credit[:, path.state[0, present] == STATES] = 0.0  # behind an end nothing is earned, ever
    if credit.shape != moves_weights.shape:
        return float("nan")
    scale = float((credit * moves_weights).sum() / ((credit**2).sum() or 1.0))
    off = float(np.linalg.norm(scale * credit - moves_weights))
    return scale if off <= _AGREES * np.linalg.norm(moves_weights) else 0.0
