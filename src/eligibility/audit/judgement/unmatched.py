"""What is wrong where no composition of the catalogue explains the gradients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from eligibility.audit.arrays import Array, Booleans
from eligibility.audit.judgement.case import Case
from eligibility.audit.judgement.evidence import Evidence, gather
from eligibility.audit.judgement.exact import Bias
from eligibility.audit.judgement.free_scores import what_is_scored
from eligibility.audit.judgement.matching import effective_weights
from eligibility.audit.judgement.moved_returns import moved_returns
from eligibility.audit.judgement.scoring import compare_scoring
from eligibility.audit.judgement.timeline import Timeline
from eligibility.audit.reporting.report import Finding
from eligibility.audit.running.survey import has_critic

_ROUNDING = 1e-6  # of numbers that are whole, as a share of 1
_FEW = 4  # paths of several episodes that say nothing yet


def unmatched_fault(
    case: Case,
    evidence: Evidence,
    line: Timeline,
    measured: Bias,
    warnings: Sequence[Finding],
) -> Finding | None:
    """The fault as far as it can be told; None if a sample of the paths cannot tell of any."""
    size = f"the expected gradient is off by {measured.residual:.1%}, cosine {measured.cosine:+.3f}"
    scoring = compare_scoring(case.survey)
    if scoring is not None:
        return case.finding(scoring.rule, f"{scoring.evidence}; {size}")
    known = next((finding for finding in warnings if finding.severity == "fault"), None)
    if known is not None or not case.survey.exhaustive:
        return known
    weights, outside = effective_weights(evidence)
    if outside.max() < case.tolerance:
        whole = _whole_numbers(case, evidence, line, weights)
        if whole:
            return case.finding("integer-returns", f"{whole}; {size}")
    for part in _parts(case, evidence):
        alike = _alike(part, case.tolerance)
        if alike:
            return case.finding("broadcast", f"{alike}; {size}")
    scored = (
        what_is_scored(case.survey, evidence, line, case.constants, case.tolerance)
        if case.reading is None  # else the eligibilities explain what the rewards move
        else None
    )
    if scored is not None:
        return case.finding(scored.rule, f"{scored.evidence}; {size}")
    moved = (
        moved_returns(evidence, line, case.constants, case.tolerance)
        if has_critic(case.survey)
        else ""
    )
    if moved:
        return case.finding(moved, f"explains every path, with a critic's values; {size}")
    off = f"{outside.max():.1%} of the gradient lies outside the span of the executed actions'"
    return case.finding("unexplained", f"{size}; {off} eligibilities")


def _parts(case: Case, evidence: Evidence) -> Iterator[Evidence]:
    """The decisions; and those with the actions that a vector environment ignored."""
    yield evidence
    if not all(step.executed for trace in case.survey.traces for step in trace.steps):
        more = gather(case.survey, ignored=True)
        if more is not None and more.scored:
            finite: Booleans = np.asarray(np.isfinite(more.ascent).all(axis=1))
            yield more.where(finite)


def _alike(evidence: Evidence, tolerance: float) -> str:
    """Whether each path has one weight for all of its actions, also of several episodes.

    The least-squares c of ``−gradient = c Σ_i e_i`` on every path leaves nothing.
    """
    total = evidence.eligibility.sum(axis=1)
    square = np.maximum((total**2).sum(axis=1), 1e-300)
    factor = (total * evidence.ascent).sum(axis=1) / square
    left = np.linalg.norm(evidence.ascent - factor[:, None] * total)
    several = [
        len(set(zip(evidence.environment[p, here], evidence.episode[p, here], strict=True))) > 1
        for p, here in enumerate(evidence.present)
    ]
    if sum(several) < _FEW or left >= tolerance * float(np.linalg.norm(evidence.ascent)):
        return ""
    return "on every path all actions, of all its episodes, are reinforced by the same number"


def _whole_numbers(case: Case, evidence: Evidence, line: Timeline, weights: Array) -> str:
    """Whether the weights of one state differ by whole numbers: an integer minus its value.

    Only of paths whose eligibilities are independent, so that the weights are the only ones.
    """
    own = np.array(
        [
            np.linalg.matrix_rank(evidence.eligibility[p, here], rtol=1e-6) == here.sum()
            for p, here in enumerate(evidence.present)
        ]
    )
    known = evidence.present & own[:, None]
    for discount in (*case.constants.discounts, 1.0):
        for count in (1.0, np.maximum(line.steps, 1)[:, None]):
            numbers = weights * count / discount**line.time
            steps = _differences(numbers[known], evidence.state[known])
            apart = {int(step) for step in np.round(steps) if step}
            close = np.abs(steps - np.round(steps)) < max(_ROUNDING, case.tolerance)
            if len(apart) > 1 and bool(close.all()):
                return "the weights of the actions in one state differ by whole numbers"
    return ""


def _differences(numbers: Array, states: Array) -> Array:
    """Of each number, its distance from the first one in the same state."""
    found = [numbers[states == state] for state in np.unique(states)]
    return np.concatenate([own - own[0] for own in found]) if found else np.zeros(0)
