"""The optimizer's steps on one batch: repeated ones, those of its parts, and their correction.

A ratio of probabilities is written in many ways, and only some of them can be told from a graph.
What it does is measured: the gradient of a later step follows the probabilities that the policy
had when it acted, and without a ratio it follows those of the moved policy alone.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from eligibility.audit.arrays import Array
from eligibility.audit.job import Job
from eligibility.audit.running.runner import Runner
from eligibility.audit.running.survey import Survey
from eligibility.audit.trace import RATIO, Trace

_DISTANCE = 0.1  # how far each of the policy's own tensors is moved
_SAME = 1e-6  # share of a gradient that is rounding


class _Step(NamedTuple):
    """An optimizer step that moves the policy."""

    number: int  # which of the path's steps it is, from 0
    before: int  # transitions before it
    # the ascent of each of the policy's own tensors; None without one
    rows: tuple[tuple[float, ...] | None, ...]


def repeated_steps(survey: Survey) -> int:
    """How many steps used the same gradient on the same data, without a ratio; 1: none did.

    On every path: two episodes that happen to be alike are not the same data.
    """
    used = (
        Counter((step.before, step.rows) for step in steps)
        for steps in _steps_without_ratio(survey)
        if steps
    )
    return min((max(counts.values()) for counts in used), default=1)


def has_steps_of_parts(survey: Survey) -> bool:
    """Whether parts of one batch have separate steps, without a ratio."""
    for steps in _steps_without_ratio(survey):
        moved = [
            (step.before, tensor)
            for step in steps
            for tensor, row in enumerate(step.rows)
            if row is not None and any(row)
        ]
        if len(set(moved)) < len(moved):
            return True
    return False


def with_measured_ratio(survey: Survey, runner: Runner) -> Survey:
    """The survey with a note of the ratio in its steps, where one is measured and not yet seen."""
    for trace, steps in zip(survey.traces, _steps_without_ratio(survey), strict=False):
        discrete = all(draw.loc is None and draw.density is None for draw in trace.draws)
        pair = _repeated(steps)
        if pair and discrete:  # the values of other draws would move with the policy
            if not _is_corrected(trace, pair, survey, runner):
                return survey
            noted = (replace(each, notes=(*each.notes, RATIO)) for each in survey.traces)
            return replace(survey, traces=tuple(noted))
    return survey


def _repeated(steps: list[_Step]) -> tuple[int, int] | None:
    """The numbers of two steps that used the same gradient on the same data."""
    seen: dict[Any, int] = {}
    for step in steps:
        first = seen.setdefault((step.before, step.rows), step.number)
        if first != step.number:
            return first, step.number
    return None


def _is_corrected(trace: Trace, pair: tuple[int, int], survey: Survey, runner: Runner) -> bool:
    """Whether the later step gets another gradient if the policy has moved since the first."""
    first, later = pair
    own = sorted(survey.own)
    job = Job(
        trace.picked, survey.size, survey.directions_each, tensor=own[0], also=tuple(own[1:]),
        distance=_DISTANCE, raised=survey.raised,
    )  # fmt: skip
    before, since = (
        _gradient(runner.run(replace(job, moved_after=after)), later, survey)
        for after in (0, first + 1)
    )
    return before.shape == since.shape and not np.allclose(
        before, since, rtol=0.0, atol=_SAME * float(np.abs(before).max(initial=0.0))
    )


def _gradient(trace: Trace, number: int, survey: Survey) -> Array:
    """What one of a path's steps got, along the directions of the policy's own tensors."""
    steps = (step for step in _policy_steps(trace, survey) if step.number == number)
    return np.array([value for step in steps for row in step.rows for value in row or ()])


def _steps_without_ratio(survey: Survey) -> list[list[_Step]]:
    """The steps of every path; none if a ratio was seen."""
    if any(RATIO in trace.notes for trace in survey.traces):
        return []
    return [_policy_steps(trace, survey) for trace in survey.traces]


def _policy_steps(trace: Trace, survey: Survey) -> list[_Step]:
    """A path's optimizer steps that move the policy; a critic may be trained more often."""
    own, steps = survey.own, []
    for number, update in enumerate(trace.updates):
        rows = tuple(row for tensor, row in enumerate(update.ascent) if tensor in own)
        if any(row and any(row) for row in rows):
            steps.append(_Step(number, update.steps_before, rows))
    return steps
