"""The checks that an explanation shows: each is computed, and may fail."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Binomial, Multinomial

from eligibility.explanation.elements import Check
from eligibility.explanation.problem import Part, Problem, like_rows, log_prob_in, start_in
from eligibility.reinforce.exact.law import compositions
from eligibility.rules.rule import Rule

_EPSILON = torch.finfo(torch.float64).eps
# Entries that finite differences perturb, and outcomes that an enumeration visits, at most.
_MOST_ENTRIES = 64
# Matrices that stay symmetric when they change: both mirrored entries move, by half each.
_SYMMETRIC = ("covariance_matrix", "precision_matrix")
_MOST_OUTCOMES = 4096


def check_equal(
    statement: str, left: Tensor, right: Tensor, rounding: Tensor, detail: str
) -> Check:
    """Whether two results agree, entry by entry, to the ``rounding`` that they may have."""
    same = (left == right) | (left.isnan() & right.isnan())
    gap = torch.where(same, torch.zeros_like(left), (left - right).abs()).reshape(-1)
    allowed = rounding.expand(left.shape).reshape(-1)
    if not len(gap):
        return Check(statement, True, 0.0, 0.0)
    passed = bool((gap <= allowed).all())
    worst = int((gap - allowed).nan_to_num(nan=math.inf).argmax())
    return Check(
        statement, passed, float(gap[worst]), float(allowed[worst]), "" if passed else detail
    )


def check_that(statement: str, holds: bool) -> Check:
    """A statement that is true or false, not nearly true."""
    return Check(statement, holds, 0.0 if holds else math.nan, 0.0, "" if holds else "it does not")


def check_zero(statement: str, summands: Tensor, epsilon: float = _EPSILON) -> list[Check]:
    """Whether the last axis of ``summands`` adds up to 0; nothing if one of them is infinite."""
    if not bool(summands.isfinite().all()):
        return []
    total = summands.sum(-1)
    largest = rounding_of(summands.abs().amax(-1), summands.shape[-1], epsilon)
    return [check_equal(statement, total, torch.zeros_like(total), largest, "the sum is not 0")]


def rounding_of(scale: Tensor, terms: int, epsilon: float = _EPSILON) -> Tensor:
    """How far a sum of ``terms`` terms as large as ``scale`` may be off."""
    return 8 * epsilon * terms * scale.nan_to_num(posinf=0.0)


def why_autograd_differs(part: Part) -> str:
    """The reason that fits, for a rule and an autograd that disagree."""
    if part.is_clamped:
        return "torch clamps probabilities, and a clamp has derivative 0 outside its bounds"
    return "torch's own log_prob is less accurate than the rule here"


def check_finite_differences(
    problem: Problem, name: str, coordinates: str | None, rule: Tensor
) -> list[Check]:
    """The rule against differences of ``log p``; their own error sets the tolerance.

    Nothing where the rule is infinite: the outcome is impossible there, and log p has no slope.
    """
    if not bool(rule.isfinite().all()):
        return []
    start = start_in(problem, name, coordinates)
    size = start.numel()
    chosen = torch.linspace(0, size - 1, min(size, _MOST_ENTRIES)).long()

    def slopes(step: float) -> tuple[Tensor, Tensor]:
        width = step * torch.where(start == 0, torch.ones_like(start), start.abs())
        values = []
        for index in chosen.tolist():
            nudge = torch.zeros(size, dtype=torch.float64)
            nudge[index] = width.reshape(-1)[index]
            shift = nudge.reshape(start.shape)
            if name in _SYMMETRIC:
                shift = (shift + shift.mT) / 2
            # From a probability of 0 or 1 only inwards: torch clamps what lies beyond.
            entry = float(start.reshape(-1)[index])
            inward = {0.0: 1, 1.0: -1}.get(entry, 0) if name == "probs" else 0
            sign, weights = (inward, _ONE_SIDED) if inward else (1, _CENTRAL)
            heights = [
                weight * log_prob_in(problem, name, coordinates, start + sign * at * shift)
                for at, weight in weights.items()
            ]
            rise = torch.stack(heights).sum(0).nan_to_num(nan=0.0).sum()
            values.append(sign * rise / nudge[index])
        return torch.stack(values), width.reshape(-1)[chosen]

    with torch.no_grad():
        (coarse, _), (fine, width) = slopes(2e-5), slopes(1e-5)
        height = log_prob_in(problem, name, coordinates, start).abs().nan_to_num(posinf=0.0).max()
    # Halving the step divides the truncation error by 4; the rest is rounding of log p.
    error = (coarse - fine).abs() + 16 * _EPSILON * (1 + height) / width
    gap = (fine - rule.reshape(-1)[chosen]).abs()
    worst = int((gap - error).argmax())
    detail = f"{len(chosen)} of {size} entries" if len(chosen) < size else ""
    passed, deviation = bool((gap <= error).all()), float(gap[worst])
    statement = "rule = finite differences of log p"
    return [Check(statement, passed, deviation, float(error[worst]), detail)]


# Where log p is evaluated, in steps, and its weight there: both are exact for a parabola.
_CENTRAL = {1: 0.5, -1: -0.5}
_ONE_SIDED = {0: -1.5, 1: 2.0, 2: -0.5}


def check_mean(problem: Problem, rule: Rule) -> list[Check]:
    """Whether ``Σ p(y) e(y)`` over every outcome is 0; nothing if they cannot be enumerated."""
    dist = problem.distribution()
    outcomes = enumerate_outcomes(dist)
    if outcomes is None:
        return []
    probs = dist.log_prob(outcomes).exp()
    scores = rule.at(problem.read(rule), outcomes)
    weights = like_rows(probs, scores)
    summands = torch.where(weights > 0, weights * scores, torch.zeros_like(scores))
    statement = f"Σ p(y) e(y) over all {len(outcomes)} outcomes = 0"
    return check_zero(statement, summands.movedim(0, -1))


def enumerate_outcomes(dist: Any) -> Tensor | None:
    """Every outcome ``[outcomes, *batch, *event]``; None if they are too many or not finite."""
    if isinstance(dist, Multinomial):
        categories = dist.event_shape[0]
        if math.comb(dist.total_count + categories - 1, categories - 1) > _MOST_OUTCOMES:
            return None
        counts = compositions(dist.total_count, categories, _MOST_OUTCOMES).double()
        ones = (1,) * len(dist.batch_shape)
        return counts.reshape(-1, *ones, categories).expand(-1, *dist.batch_shape, -1)
    if isinstance(dist, Binomial) and bool((dist.total_count != dist.total_count.max()).any()):
        return None
    if not dist.has_enumerate_support:
        return None
    outcomes: Tensor = dist.enumerate_support(expand=True)
    return outcomes if len(outcomes) <= _MOST_OUTCOMES else None
