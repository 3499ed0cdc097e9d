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

from eligibility.audit.arrays import Array
from eligibility.audit.judgement.advantage import (
    ACTION_VALUE,
    AFTER_TRANSFORM,
    Advantage,
    is_affine,
)
from eligibility.audit.judgement.catalogue import Candidate
from eligibility.audit.judgement.entropy import entropy_columns
from eligibility.audit.judgement.evidence import Evidence
from eligibility.audit.judgement.single_episodes import single_episodes
from eligibility.audit.judgement.spread import across, divided_by_one, least_left, with_epsilon
from eligibility.audit.judgement.timeline import Timeline

_REFINEMENTS, _PROMISING = 6, 0.1  # steps of a fit's refinement, and the residual that allows them
_FINER = 0.1  # of the tolerance, for what is a part of the gradients
_MOVE = 1e-5  # of a value or of ε, for the slopes that the refinement goes by


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
    if not is_affine(form) and form.form.scope == "episode" and not line.single:
        return _fit_of_episodes(evidence, line, form, tolerance)
    solve = partial(_linear_fit, known=scale) if is_affine(form) else _fit_over_spread
    fit = solve(evidence, line, form, tolerance)
    for _ in range(_REFINEMENTS if form.form.divides or form.divides_rewards else 0):
        if fit is None or not tolerance <= fit.residual < _PROMISING:
            break
        form, values = _refined(evidence, line, fit)
        bonus = entropy_columns(evidence, line, form.norm)
        better = _scaled_fit(evidence, line, form, values, tolerance, ((), bonus))
        if better is None or better.residual > max(fit.residual / 2.0, tolerance):
            break  # where a fit is near, each step leaves far less
        fit = better
    return fit


def _fit_of_episodes(
    evidence: Evidence, line: Timeline, form: Advantage, tolerance: float
) -> Fit | None:
    """The fit of episodes one by one, each of which is divided by its own deviation."""
    of_each = form.norm == "mean-over-each-episode"
    inner, outer = ("mean-over-time", "") if of_each else ("", form.norm)
    alone = single_episodes(evidence, line, outer, tolerance)
    if alone is None or form.of == "history":  # whose numbers are not the same
        return None
    own = replace(form, form=replace(form.form, scope="batch", norm=inner))
    fit = fit_advantage(*alone, own, _FINER * tolerance)
    if fit is None or fit.residual >= tolerance:
        return None
    found = replace(fit.advantage.form, scope="episode", norm=form.norm)
    entropies = (), entropy_columns(evidence, line, form.norm)
    advantage = replace(fit.advantage, form=found)
    return _scaled_fit(evidence, line, advantage, fit.values, tolerance, entropies)


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
        weights = form.weights(evidence, line, np.stack(_units(evidence, form)))
    else:
        weights = form.form.finished(_credits_of_units(evidence, line, bare), line)
    weights[1:] -= weights[0]
    gradients = weights.transpose(1, 0, 2) @ evidence.eligibility  # [P, V, D]
    columns = list(gradients.transpose(1, 0, 2).reshape(len(weights), -1))
    # a constant baseline next to the critic's, subtracted where the values are
    outside = replace(form.form, transform="") if after else form.form
    columns.append(_gradient(evidence, outside.finished(line.present.astype(float), line)))
    return columns


def _linear_fit(
    evidence: Evidence, line: Timeline, form: Advantage, tolerance: float, known: float | None
) -> Fit | None:
    """Without a transform the weights are affine in the values: one least-squares problem."""
    columns, target = linear_columns(evidence, line, form), evidence.ascent.ravel()
    if not np.isfinite(columns).all():
        return None  # a leave-one-out mean of one
    size, values = float(np.linalg.norm(target)), len(columns) - 2
    if form.form.spares_single:  # what is not divided may have a factor of its own
        shape = evidence.ascent.shape
        columns = [*columns, (columns[0].reshape(shape) * (line.steps == 1)[:, None]).ravel()]

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
    if form.form.spares_single and own[values + 1] > -1.0:
        form = replace(form, form=replace(form.form, alone=1.0 + float(own[values + 1])))
    return Fit(form, own[:values], scale, float(own[len(columns) - 1 :].sum()), residual)


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
        found = _values_across(evidence, line, form.of_directions, bonus)
        if found is None:
            return None
        values, least = found
        near = form.between or form.divides_rewards  # with a λ or an ε that is still to be found
        if least >= max(tolerance, _PROMISING if near else 0.0):
            continue
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


@lru_cache(maxsize=4096)
def _values_across(
    evidence: Evidence, line: Timeline, form: Advantage, bonus: bool
) -> tuple[Array, float] | None:
    """The values that leave least across each path's gradient; one answer for all deviations.

    And what they leave of the gradients at least, on the paths that are divided by one number.
    """
    columns = linear_columns(evidence, line, form)[:-1]
    if not np.isfinite(columns).all():
        return None
    gradients = np.stack(columns, axis=-1).reshape(*evidence.ascent.shape, -1)  # [P, D, 1 + V]
    moves = np.any(evidence.ascent, axis=1)  # not where all credits are equal
    alone = moves & divided_by_one(form.form, line)
    rest = across(evidence, line, form.norm, True, bonus)(gradients)[
        alone if alone.any() else moves
    ]
    matrix = rest.reshape(-1, rest.shape[-1])
    values = np.asarray(np.linalg.lstsq(matrix[:, 1:], -matrix[:, 0], rcond=1e-11)[0])
    own = gradients @ np.array([1.0, *values])
    return values, least_left(evidence, line, form.form, own)


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
    """The form and its values after one step of Gauss and Newton's in all that is unknown."""
    form, values = fit.advantage, fit.values

    def moved_by(by: Array) -> tuple[Advantage, Array]:
        alone, epsilon, decay, of_rewards = (float(each) for each in by[-4:])
        alone, epsilon = form.form.alone + alone, form.form.epsilon + epsilon
        own, rewards = replace(form.form, epsilon=epsilon, alone=alone), form.rewards
        if rewards is not None:
            rewards = replace(rewards, epsilon=rewards.epsilon + of_rewards)
        moved = replace(form, form=own, decay=form.decay + decay, rewards=rewards)
        return moved, values + by[:-4]

    def gradient(by: Array) -> Array:
        own, its_values = moved_by(by)
        return _gradient(evidence, own.weights(evidence, line, its_values))

    numbers = form.form.spares_single, form.form.divides, form.between, form.divides_rewards
    unknown = np.array([*([True] * len(values)), *numbers])
    units = _MOVE * np.eye(len(unknown))[unknown]
    slopes = [(gradient(unit) - gradient(-unit)) / (2.0 * _MOVE) for unit in units]
    columns = [gradient(np.zeros(len(unknown))), *slopes]
    matrix = np.array([*columns, *entropy_columns(evidence, line, form.norm)]).T
    if not np.isfinite(matrix).all():
        return form, values
    solution = np.linalg.lstsq(matrix, evidence.ascent.ravel(), rcond=1e-11)[0]
    by = np.zeros(len(unknown))
    by[unknown] = solution[1 : len(units) + 1] / (float(solution[0]) or 1.0)
    by[-3] = max(float(by[-3]), -form.form.epsilon)
    return moved_by(by)
