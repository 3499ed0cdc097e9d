"""Advantages with a critic: its values are unknown, and found with the weights they explain.

The values of the probe's few states are the only unknowns, so they can be fitted to the gradients
of all paths; if the fit leaves nothing, the program computes this advantage with those values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from eligibility.audit.arrays import Array
from eligibility.audit.job import STATES
from eligibility.audit.judgement.catalogue import (
    TRANSFORMS,
    Candidate,
    candidates,
    entropy_norms,
    norm_factor,
)
from eligibility.audit.judgement.evidence import Evidence
from eligibility.audit.judgement.timeline import Timeline

# How the end of an episode enters the advantage, the right way first.
ENDINGS = ("", "truncation-as-termination", "bootstrapped-after-termination")
_AFFINE = ("", "centred", "leave-one-out")
_ITERATIONS = 25
_LONG = 200  # decisions of a batch beyond which a fit takes long


@dataclass(frozen=True)
class Advantage:
    """A composition whose credits a critic's values have entered.

    Σ_{k ≥ t} (γλ)^(k−t) (r_k + γ V(s_{k+1}) − V(s_k)) (Schulman et al. 2016, generalised advantage
    estimation), or the composition's own credit minus V(s).

    Attributes:
        form: Everything but the values.
        ending: One of ``ENDINGS``; or, without bootstrap, "return": the credit minus V(s), or
            "return-after-transform": V(s) is subtracted from the whitened credit.
        decay: λ.
    """

    form: Candidate
    ending: str
    decay: float

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
        own = (self.ending,) if self.ending in ENDINGS[1:] else ()
        return self.form.faults + own

    @property
    def conventions(self) -> tuple[str, ...]:
        """Its parts that people choose on purpose."""
        estimated = "gae" if 0.0 < self.decay < 1.0 else "bootstrapped"
        critic = "baseline" if self.ending.startswith("return") else estimated
        return (critic, *self.form.conventions)

    def weights(self, evidence: Evidence, line: Timeline, values: Array) -> Array:
        """[P, I] the reinforcement of each action for ``values`` [states]."""
        here = values[evidence.state]
        if self.ending == "return-after-transform":
            own = self.form.credit.of(line, self.discount)
            finished = self.form.finished(own, line)
            plain = replace(self.form, transform="")
            return finished - plain.finished(here * line.present, line)
        if self.ending == "return":
            credit = self.form.credit.of(line, self.discount) - here
        else:
            ended = {
                "": evidence.terminated,
                "truncation-as-termination": evidence.terminated | evidence.truncated,
                "bootstrapped-after-termination": np.zeros_like(evidence.terminated),
            }[self.ending]
            following = np.where(ended, 0.0, values[evidence.next_state])
            delta = evidence.reward + self.discount * following - here
            credit = line.accumulated(delta * line.present, self.discount * self.decay)
        return self.form.finished(credit * line.present, line)


@dataclass(frozen=True)
class Fit:
    """An advantage with the values that explain the program's gradients.

    Attributes:
        advantage: The form.
        values: [states] the critic's values, the terminal state last.
        scale: The constant factor.
        entropy: Factor of the entropy's gradient, relative to ``scale``.
        residual: ‖gradient − explanation‖ / ‖gradient‖ over all paths.
    """

    advantage: Advantage
    values: Array
    scale: float
    entropy: float
    residual: float


def _forms(
    line: Timeline, discounts: Sequence[float], epsilons: Sequence[float]
) -> Iterator[Candidate]:
    """Compositions that a critic's values may enter; of long batches only those without a fault."""
    long = line.present.shape[1] > _LONG
    for form in candidates(line, discounts, epsilons, parts=2):
        if not long or not form.faults:
            yield form


def baselines(
    line: Timeline, discounts: Sequence[float], epsilons: Sequence[float]
) -> Iterator[Advantage]:
    """Compositions minus V(s), whose weights are affine in the values."""
    for form in _forms(line, discounts, epsilons):
        if form.transform in _AFFINE:
            yield Advantage(form, "return", 1.0)
        if form.transform in TRANSFORMS[1:]:
            yield Advantage(form, "return-after-transform", 1.0)


def bootstraps(
    line: Timeline, discounts: Sequence[float], decays: Sequence[float]
) -> Iterator[Advantage]:
    """Generalised advantages, whose weights are affine in the values."""
    for form in _forms(line, discounts, (0.0,)):
        plain = not form.credit.rule or form.credit.factor is not None
        if form.transform in _AFFINE and plain:
            for ending, decay in product(ENDINGS, decays):
                yield Advantage(form, ending, decay)


def whitened(
    line: Timeline,
    discounts: Sequence[float],
    decays: Sequence[float],
    epsilons: Sequence[float],
) -> Iterator[Advantage]:
    """Whitened advantages, whose weights are not affine in the values."""
    if line.present.shape[1] > _LONG:
        return
    for form in _forms(line, discounts, epsilons):
        plain = not form.credit.rule and not form.coupling and form.scope == "batch"
        if plain and form.transform in ("whitened", "whitened-biased"):
            yield Advantage(form, "return", 1.0)
            for ending, decay in product(ENDINGS[:2], decays):
                yield Advantage(form, ending, decay)


def fit_advantage(evidence: Evidence, line: Timeline, form: Advantage) -> Fit | None:
    """The values with which ``form`` comes closest to the gradients."""
    return (_linear_fit if is_affine(form) else _nonlinear_fit)(evidence, line, form)


def _gradient(evidence: Evidence, weights: Array) -> Array:
    flat: Array = np.einsum("pi,pid->pd", weights, evidence.eligibility).ravel()
    return flat


def entropy_columns(evidence: Evidence, line: Timeline, norm: str) -> list[Array]:
    """The entropy's gradient on every path, divided as the policy's sum is; and its own mean.

    Only one of them where all batches are equally long: there the two differ by a factor.
    """
    columns: list[Array] = []
    for divided in entropy_norms(norm):
        weights = norm_factor(divided, line) * line.present
        column = np.einsum("pi,pid->pd", weights, evidence.entropy).ravel()
        size = float(np.linalg.norm(column))
        if all(abs(c @ column) < (1 - 1e-9) * size * np.linalg.norm(c) for c in columns):
            columns.append(column)
    return columns


def linear_columns(evidence: Evidence, line: Timeline, form: Advantage) -> list[Array]:
    """The gradients that a form whose weights are affine in the values is a sum of.

    At first the one without values, then one for each state's, then a constant, then the entropy's.
    """
    size = STATES + 1
    plain = form.weights(evidence, line, np.zeros(size))
    columns = [_gradient(evidence, plain)]
    for unit in np.eye(size):
        columns.append(_gradient(evidence, form.weights(evidence, line, unit) - plain))
    # a constant baseline beside the critic's, subtracted where the values are
    after = form.ending == "return-after-transform"
    outside = replace(form.form, transform="") if after else form.form
    columns.append(_gradient(evidence, outside.finished(line.present.astype(float), line)))
    return columns + entropy_columns(evidence, line, form.norm)


def is_affine(form: Advantage) -> bool:
    """Whether its weights are affine in the critic's values."""
    return form.form.transform in _AFFINE or form.ending == "return-after-transform"


def _linear_fit(evidence: Evidence, line: Timeline, form: Advantage) -> Fit | None:
    """Without a transform the weights are affine in the values: one least-squares problem."""
    size = STATES + 1
    columns = linear_columns(evidence, line, form)
    matrix, target = np.array(columns).T, evidence.ascent.ravel()
    if not np.isfinite(matrix).all():
        return None  # a leave-one-out mean of one
    solution: Array = np.asarray(np.linalg.lstsq(matrix, target, rcond=1e-11)[0])
    residual = float(np.linalg.norm(target - matrix @ solution) / np.linalg.norm(target))
    scale = float(solution[0])
    unit_scale = scale if scale != 0.0 else 1.0
    values: Array = solution[1 : size + 1] / unit_scale
    bonus = float(solution[size + 2 :].sum())
    return Fit(form, values, scale, bonus / unit_scale, residual)


def _nonlinear_fit(evidence: Evidence, line: Timeline, form: Advantage) -> Fit | None:
    """With whitening they are not: Levenberg-Marquardt on the values, the rest linear."""
    target = evidence.ascent.ravel()
    entropy = entropy_columns(evidence, line, form.norm)

    def explained(values: Array) -> tuple[Array, Array]:
        column = _gradient(evidence, form.weights(evidence, line, values))
        matrix = np.stack([column, *entropy], axis=1)
        factors: Array = np.asarray(np.linalg.lstsq(matrix, target, rcond=1e-11)[0])
        difference: Array = target - matrix @ factors
        return difference, factors

    if not np.isfinite(form.weights(evidence, line, np.zeros(STATES + 1))).all():
        return None
    values = levenberg_marquardt(lambda v: explained(v)[0], np.zeros(STATES + 1))
    difference, factors = explained(values)
    scale = float(factors[0])
    residual = float(np.linalg.norm(difference) / np.linalg.norm(target))
    return Fit(form, values, scale, float(factors[1:].sum()) / (scale or 1.0), residual)


def levenberg_marquardt(difference: Callable[[Array], Array], start: Array) -> Array:
    """A minimum of ‖difference(x)‖² near ``start``, by central differences.

    References:
        Marquardt 1963, *An algorithm for least-squares estimation of nonlinear parameters*.
    """
    point, damping = start, 1e-3
    now = difference(point)
    for _ in range(_ITERATIONS):
        columns = [
            (difference(point + 1e-6 * unit) - difference(point - 1e-6 * unit)) / 2e-6
            for unit in np.eye(len(point))
        ]
        jacobian = np.array(columns).T
        curvature = jacobian.T @ jacobian
        while damping < 1e8:
            bound = curvature + damping * np.diag(np.diag(curvature) + 1e-12)
            moved = point - np.linalg.solve(bound, jacobian.T @ now)
            then = difference(moved)
            if np.isfinite(then).all() and then @ then < now @ now:
                break
            damping *= 4.0
        else:
            return point
        gained = 1.0 - (then @ then) / (now @ now)
        point, now, damping = moved, then, damping / 10.0
        if gained < 1e-3 or now @ now < 1e-26:
            return point
    return point
