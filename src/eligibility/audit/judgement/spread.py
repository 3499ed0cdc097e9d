"""The ε that a program adds to the standard deviation it divides by, from its gradients.

Whatever the ε, the division only changes how large a group's share of the gradient is:
−gradient = c Σ_g N_g/(σ_g + ε), with the undivided sums N_g of the path's groups. So the factors
s_g = c/(σ_g + ε) are fitted first, and ε follows from s_g σ_g/c + s_g ε/c = 1, which is linear in
1/c and ε/c.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import numpy as np

from eligibility.audit.arrays import Array, Booleans, Integers
from eligibility.audit.judgement.catalogue import Candidate
from eligibility.audit.judgement.entropy import entropy_columns
from eligibility.audit.judgement.evidence import Evidence
from eligibility.audit.judgement.timeline import Timeline, timeline

_AGREES = 1e-3  # share by which the factors may miss the line before the exact check
_STEPS, _NEAR = 6, 0.1  # of Gauss and Newton, and the share that the first may leave
_FAR_LESS = 1e-2  # of what is left without an entropy
_TOLD = 1e-9  # share of a sum's square that must not be along an entropy's gradient
_SMALL = 1e-9  # relative size of a group's share that tells nothing


def divided_by_one(form: Candidate, line: Timeline) -> Booleans:
    """[P] the paths whose whole sum ``form`` divides by one number, whatever that is."""
    if form.scope == "episode":
        return np.asarray(line.episodes == 1)
    return np.full(line.episodes.shape, form.scope != "time")


def least_left(evidence: Evidence, line: Timeline, form: Candidate, undivided: Array) -> float:
    """The share of the gradients that ``form`` leaves at least, whatever its deviations are.

    They only make a path's gradient longer or shorter, so what is left is no smaller than the sine
    of the angle between the two: without [P, D] directions that agree, no ε needs to be looked for.
    """
    off = across(evidence, line, form.norm, True, True)(undivided[..., None])[..., 0]
    unlike = _lengths(off) / np.maximum(_lengths(undivided), 1e-300)
    own = across(evidence, line, form.norm, False, True)(evidence.ascent[..., None])[..., 0]
    left = (_lengths(own) * unlike)[divided_by_one(form, line)]
    return float(np.linalg.norm(left) / np.linalg.norm(evidence.ascent))


@lru_cache(maxsize=64)
def across(
    evidence: Evidence, line: Timeline, norm: str, gradient: bool, entropy: bool
) -> Callable[[Array], Array]:
    """Takes from vectors of every path, [P, D, n], what is along its gradient or its entropy's."""
    shape = evidence.ascent.shape
    columns = entropy_columns(evidence, line, norm) if entropy else ()
    known = [*([evidence.ascent] if gradient else []), *(each.reshape(shape) for each in columns)]
    directions = np.stack(known, axis=-1)
    directions = directions / np.maximum(_lengths(directions)[:, None], 1e-300)
    inverse = np.linalg.pinv(directions, rcond=1e-9)  # [P, directions, D]
    return lambda vectors: vectors - directions @ (inverse @ vectors)


def _lengths(vectors: Array) -> Array:
    lengths: Array = np.linalg.norm(vectors, axis=1)
    return lengths


def with_epsilon(
    form: Candidate, undivided: tuple[Array, Array | None], evidence: Evidence, line: Timeline
) -> Candidate:
    """``form`` with the ε that fits, and the factor of what is not divided; as it is if none does.

    Args:
        form: The composition.
        undivided: [P, I] its weights before the division, and the deviations.
        evidence: The gradients.
        line: The line of the same decisions.
    """
    numbers, spread = undivided
    if spread is None or not np.isfinite(numbers).all():
        return form
    if not form.spares_single:
        return _with_epsilon(form, numbers, spread, evidence, line)
    several = line.steps > 1
    if not several.any():
        return form
    part = _of_several(evidence, line)
    form = _with_epsilon(form, numbers[several], spread[several], *part)
    own, goal = evidence.gradient(form.divided(numbers, spread, line)), evidence.ascent
    off = across(evidence, line, form.norm, False, True)
    rest, rest_of_goal = (off(each[..., None])[..., 0] for each in (own, goal))
    # with two actions, one step's gradient is along its entropy's, and tells the factor nearly
    told = (rest[~several] ** 2).sum() > _TOLD * (own[~several] ** 2).sum()
    single = _factor(rest, rest_of_goal, ~several) if told else _factor(own, goal, ~several)
    scale = _factor(rest, rest_of_goal, several)
    found = replace(form, alone=single / scale) if single * scale > 0.0 else None
    return _plainer(form, found, evidence, line)


def _factor(own: Array, goal: Array, paths: Booleans) -> float:
    """What some paths of ``own`` are best multiplied by to be ``goal``; 0 if they are 0."""
    square = float((own[paths] ** 2).sum())
    return float((own[paths] * goal[paths]).sum()) / square if square > 0.0 else 0.0


def _with_epsilon(
    form: Candidate, numbers: Array, spread: Array, evidence: Evidence, line: Timeline
) -> Candidate:
    group, groups = _groups(form, line)
    if groups >= evidence.ascent.shape[1] and groups > 1:  # more factors than equations
        return _plainer(form, _by_steps(form, numbers, spread, evidence, line), evidence, line)
    factors, deviations = _factors(evidence, line, numbers, spread, group, groups)
    if len(factors) == 0:
        return form
    rows = np.stack([factors * deviations, factors], axis=1)
    solution, _, rank, _ = np.linalg.lstsq(rows, np.ones(len(rows)), rcond=1e-10)
    if rank < 2 or not solution[0]:
        return form  # one deviation alone: ε is part of the constant factor
    if np.abs(rows @ solution - 1.0).max() > _AGREES:
        return form
    near = replace(form, epsilon=max(float(solution[1] / solution[0]), 0.0))
    fitted = _by_steps(near, numbers, spread, evidence, line) or near
    return _plainer(form, fitted, evidence, line)


@lru_cache(maxsize=32)
def _of_several(evidence: Evidence, line: Timeline) -> tuple[Evidence, Timeline]:
    """The paths of more than one step: the same for every composition."""
    part = evidence.where(line.steps > 1)
    return part, timeline(part)


def _plainer(
    form: Candidate, fitted: Candidate | None, evidence: Evidence, line: Timeline
) -> Candidate:
    """``form`` without its numbers, where none fit or ``fitted`` leaves no less of the gradients.

    An ε of rounding alone would decide what equal returns, whose deviation is 0, are divided by.
    """
    if fitted is None:
        return form
    return min((form, fitted), key=lambda each: _left(each, evidence, line))


def _left(form: Candidate, evidence: Evidence, line: Timeline) -> float:
    """What ``form`` leaves of the gradients."""
    weights, target = form.weights(line), evidence.ascent.ravel()
    if not np.isfinite(weights).all():
        return float("inf")
    column = evidence.gradient(weights).ravel()
    matrix = np.stack([column, *entropy_columns(evidence, line, form.norm)], axis=1)
    factors = np.linalg.lstsq(matrix, target, rcond=1e-12)[0]
    return float(np.linalg.norm(target - matrix @ factors))


def _groups(form: Candidate, line: Timeline) -> tuple[Integers, int]:
    """[P, I] the number of each decision's group, and how many groups a path has."""
    scopes = {"episode": (line.segment, 1), "time": (line.time, 2)}
    if form.scope not in scopes:
        return np.zeros_like(line.time), 1
    group, axis = scopes[form.scope]
    return group, line.position.shape[axis]


def _factors(
    evidence: Evidence, line: Timeline, numbers: Array, spread: Array, group: Integers, groups: int
) -> tuple[Array, Array]:
    """The factor of every group's share in its path's gradient, and the group's deviation."""
    if groups == 1:
        shares = evidence.gradient(line.present * numbers)
        return _of_paths(evidence, line, shares, np.where(line.present, spread, 0.0))
    masks = np.stack([(group == g) & line.present for g in range(groups)])  # [G, P, I]
    shares = np.einsum("gpi,pid->pdg", masks * numbers, evidence.eligibility)
    bonus = np.einsum("pi,pid->pd", line.present, evidence.entropy)[:, :, None]
    size = np.linalg.norm(shares, axis=1)  # [P, G]
    told = size > _SMALL * max(float(size.max(initial=0.0)), 1e-300)
    found = []
    for columns in (shares, np.concatenate([shares, bonus], axis=2)):
        unit = np.maximum(np.linalg.norm(columns, axis=1, keepdims=True), 1e-300)
        solved = np.einsum("pgd,pd->pg", np.linalg.pinv(columns / unit), evidence.ascent)
        left = evidence.ascent - np.einsum("pdg,pg->pd", columns / unit, solved)
        found.append((float(np.linalg.norm(left)), (solved / unit[:, 0])[:, :groups]))
    of_group = (spread[None] * masks).max(axis=2).T  # [P, G]
    return _kept(found, of_group, told, evidence)


def _of_paths(
    evidence: Evidence, line: Timeline, shares: Array, spread: Array
) -> tuple[Array, Array]:
    """The same where each path is one group [P, D], with the entropy only if it is needed."""
    size = np.linalg.norm(shares, axis=1)
    told = size > _SMALL * max(float(size.max(initial=0.0)), 1e-300)
    unit, across = _across_entropy(evidence, line)
    found = []
    for bonus, goal in ((False, evidence.ascent), (True, across)):
        own = shares
        if bonus:
            own = own - (own * unit).sum(axis=1, keepdims=True) * unit
        factors = (own * goal).sum(axis=1) / np.maximum((own * own).sum(axis=1), 1e-300)
        found.append((float(np.linalg.norm(goal - factors[:, None] * own)), factors))
    return _kept(found, spread.max(axis=1), told, evidence)


@lru_cache(maxsize=32)
def _across_entropy(evidence: Evidence, line: Timeline) -> tuple[Array, Array]:
    """[P, D] the direction of the entropy's gradient on each path, and the ascent across it."""
    bonus = np.einsum("pi,pid->pd", line.present, evidence.entropy)
    unit = bonus / np.maximum(np.linalg.norm(bonus, axis=1, keepdims=True), 1e-300)
    along = (evidence.ascent * unit).sum(axis=1, keepdims=True)
    return unit, evidence.ascent - along * unit


def _kept(
    found: list[tuple[float, Array]], deviations: Array, told: Booleans, evidence: Evidence
) -> tuple[Array, Array]:
    """The factors without an entropy, or with one where that leaves far less, and their deviations.

    Args:
        found: What is left of the gradients, and the factors: without, and with.
        deviations: Standard deviations of the same groups.
        told: The groups whose share is large enough to tell.
        evidence: The gradients.
    """
    left, factors = found[found[1][0] < _FAR_LESS * found[0][0]]
    if left >= _AGREES * np.linalg.norm(evidence.ascent):
        return np.zeros(0), np.zeros(0)
    kept = told & (factors != 0.0) & np.isfinite(deviations)
    return factors[kept], deviations[kept]


def _by_steps(
    form: Candidate, numbers: Array, spread: Array, evidence: Evidence, line: Timeline
) -> Candidate | None:
    """``form`` with the ε that Gauss and Newton's method finds; None if nothing is near."""
    epsilon, target = form.epsilon, evidence.ascent.ravel()
    for _ in range(_STEPS):
        divisor = spread + epsilon
        first = replace(form, epsilon=epsilon).divided(numbers, spread, line)
        second = np.where(divisor > 0, first / divisor, 0.0)
        columns = [evidence.gradient(each).ravel() for each in (first, second)]
        matrix = np.stack([*columns, *entropy_columns(evidence, line, form.norm)], axis=1)
        if not np.isfinite(matrix).all():
            return None
        factors = np.linalg.lstsq(matrix, target, rcond=1e-12)[0]
        if np.linalg.norm(target - matrix @ factors) > _NEAR * np.linalg.norm(target):
            return None
        epsilon = max(epsilon - float(factors[1] / (factors[0] or 1.0)), 0.0)
    return replace(form, epsilon=epsilon)
