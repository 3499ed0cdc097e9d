"""What is wrong where no composition of the catalogue explains the gradients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from eligibility.audit.arrays import Booleans
from eligibility.audit.judgement.advantage import OWN_RETURN
from eligibility.audit.judgement.audited_program import AuditedProgram
from eligibility.audit.judgement.catalogue import MEAN_TIMES_SUM
from eligibility.audit.judgement.credit_shapes import Places, rewards_to_go
from eligibility.audit.judgement.discounts import RIGHT
from eligibility.audit.judgement.evidence import Evidence, gather
from eligibility.audit.judgement.exact import Bias
from eligibility.audit.judgement.explained import match_of
from eligibility.audit.judgement.free_scores import what_is_scored
from eligibility.audit.judgement.matching import effective_weights, within_reach
from eligibility.audit.judgement.reading import Reading, structure
from eligibility.audit.judgement.scoring import compare_scoring
from eligibility.audit.judgement.timeline import Timeline
from eligibility.audit.reporting.report import Finding
from eligibility.audit.running.sampling_calls import executed_draws, executing_call
from eligibility.audit.running.survey import Survey

# Credits that no critic and no convention has: a path's rewards say enough.
_SHAPES = {
    MEAN_TIMES_SUM,
    "reversed-returns", "rewards-so-far", "shifted-rewards", "return-carried-over-episodes",
    "return-carried-over-actors", "immediate-reward-twice",
}  # fmt: skip
_LAST_ALONE = (
    "only the last reward of an episode moves its weights: correct where all the others are 0"
)
_INFERRED = "inferred from the rewards' effect on the weights of one path"
_ALIKE = 1e-5  # of the factors of decisions
_FIT = 3  # decisions, of which fewer have a symmetric matrix by accident
_FEW = 4  # paths of several episodes that say nothing yet


def unmatched_fault(
    program: AuditedProgram,
    evidence: Evidence,
    line: Timeline,
    measured: Bias,
    warnings: Sequence[Finding],
) -> Finding | None:
    """The fault as far as it can be told; None if a sample of the paths cannot tell of any."""
    size = f"the expected gradient is off by {measured.residual:.1%}, cosine {measured.cosine:+.3f}"
    scoring = compare_scoring(program.survey)
    if scoring is not None:
        return program.finding(scoring.rule, f"{scoring.evidence}; {size}")
    known = next((finding for finding in warnings if finding.severity == "fault"), None)
    if known is None and _explained_as_executed(program):
        text = "the executed action explains every path, as if it had been sampled"
        return program.finding("transformed-action-scored", f"{text}; {size}")
    if known is not None or not program.survey.exhaustive:
        return known
    if program.measured is not None and program.measured.kind == "stepwise":
        text = "small changes of the rewards change no weight, but large ones do"
        return program.finding("integer-returns", f"{text}; {size}")
    for part in _parts(program, evidence):
        alike = _alike(part, program.tolerance)
        if alike:
            return program.finding("broadcast", f"{alike}; {size}")
    shape = _shape(program)
    if shape:
        return program.finding(shape, f"{_INFERRED}; no composition explains all paths; {size}")
    if _fits_own_returns(program):
        text = "the rewards move what is subtracted as they move a fit to the batch's own returns"
        return program.finding(OWN_RETURN, f"{text}; {size}")
    limits = program.constants, program.tolerance, _credited(program.reading)
    scored = (
        None  # another credit is not another score
        if program.reading is not None and program.reading.rule not in RIGHT
        else what_is_scored(program.survey, evidence, line, *limits)
    )
    if scored is not None:
        return program.finding(scored.rule, f"{scored.evidence}; {size}")
    outside = effective_weights(evidence)[1]
    off = f"{outside.max():.1%} of the gradient lies outside the span of the executed actions'"
    alone = f"; {_LAST_ALONE}" if _has_last_alone(program) else ""
    return program.finding("unexplained", f"{size}; {off} eligibilities{alone}")


def seen_on_one_path(program: AuditedProgram) -> tuple[Finding, ...]:
    """The fault that explains the credit of one path, where there are too many to run them all."""
    if program.reading is None or program.reading.rule not in _SHAPES:
        return ()
    text = f"{_INFERRED}; how far the expected gradient is off is not known"
    return (program.finding(program.reading.rule, text, "warning"),)


def _shape(program: AuditedProgram) -> str:
    """The fault in the credit of the replayed path; empty if it shows none."""
    shape = program.reading.rule if program.reading is not None else ""
    if _has_one_sum(program):
        shape = MEAN_TIMES_SUM
    elif program.measured is not None and shape not in _SHAPES:
        shape = structure(program.measured)
    return shape if shape in _SHAPES else ""


def _fits_own_returns(program: AuditedProgram) -> bool:
    """Whether the weights are what a least-squares fit to the returns leaves of them.

    M = c (1 − H) L with the returns' L and a hat matrix H: M L⁻¹ is symmetric, has no eigenvalue
    below 0, and is not diagonal, as factors of single rows are.
    """
    measured = program.measured
    if measured is None or measured.kind != "linear" or len(measured.credit) < _FIT:
        return False
    for discount in program.constants.discounts:
        returns = rewards_to_go(Places(measured.evidence), np.array([[[discount]]]))[0]
        left = np.linalg.solve(returns.T, measured.credit.T).T
        size = float(np.abs(left).max())
        beside = float(np.abs(left - np.diag(np.diag(left))).max())
        even = float(np.abs(left - left.T).max()) <= _ALIKE * size
        if even and beside > _ALIKE * size:
            return bool(np.linalg.eigvalsh((left + left.T) / 2.0).min() >= -_ALIKE * size)
    return False


def _has_last_alone(program: AuditedProgram) -> bool:
    """Whether only the last reward of each episode moves a weight of the replayed path."""
    if program.measured is None:
        return False
    path = program.measured.evidence
    last = (path.terminated | path.truncated)[0, path.present[0]]
    moved = np.abs(program.measured.credit).max(axis=0, initial=0.0)
    if moved.shape != last.shape or last.all() or not last.any():
        return False
    return bool(moved[~last].max() <= _ALIKE * moved[last].min())


def _has_one_sum(program: AuditedProgram) -> bool:
    """Whether all actions of the replayed path's episodes get the sum of their rewards-to-go."""
    told, reading = program.constants.told, program.reading
    if told is None or told.path is None or reading is None:
        return False
    here = told.path.present[0]
    episodes = set(zip(told.path.environment[0][here], told.path.episode[0][here], strict=True))
    return told.coupled and not reading.rule and len(episodes) < here.sum()


def _credited(reading: Reading | None) -> bool:
    """Whether what the rewards move is the credit of the actions' eligibilities, all alike."""
    return reading is not None and bool(
        np.ptp(np.abs(reading.factor)) < _ALIKE * np.abs(reading.factor).max()
    )


def _explained_as_executed(program: AuditedProgram) -> bool:
    """Whether a rule explains every path if what was executed is what was drawn."""
    other = _with_executed(program.survey)
    evidence = gather(other) if other is not None else None
    if evidence is None or not evidence.scored or not np.isfinite(evidence.ascent).all():
        return False
    within = within_reach(evidence, program.tolerance)
    return within and match_of(program.untold, evidence) is not None


def _with_executed(survey: Survey) -> Survey | None:
    """The survey with each normal number as it was executed; None if all were as drawn."""
    call, traces = executing_call(survey.traces), []
    for trace in survey.traces:
        draws = list(trace.draws)
        for step in trace.steps:
            positions = executed_draws(step, call)
            for place, number in zip(positions, step.action, strict=False):
                if len(positions) == len(step.action) and draws[place].loc is not None:
                    draws[place] = replace(draws[place], value=number)
        traces.append(replace(trace, draws=tuple(draws)))
    told = [[d.value for trace in paths for d in trace.draws] for paths in (survey.traces, traces)]
    return None if told[0] == told[1] else replace(survey, traces=tuple(traces))


def _parts(program: AuditedProgram, evidence: Evidence) -> Iterator[Evidence]:
    """The decisions; and those with the actions that a vector environment ignored."""
    yield evidence
    if not all(step.executed for trace in program.survey.traces for step in trace.steps):
        more = gather(program.survey, ignored=True)
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
    return "on every path the same number reinforces all actions of all episodes"
