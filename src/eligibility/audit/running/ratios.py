"""Whether later optimizer steps on one batch are corrected for the policy that has moved.

A ratio of probabilities is written in many ways, and only some of them can be told from a graph.
What it does is measured: the gradient of a later step follows the probabilities that the policy
had when it acted, and without a ratio it follows those of the moved policy alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from eligibility.audit.arrays import Array
from eligibility.audit.job import Job
from eligibility.audit.running.runner import Runner
from eligibility.audit.running.survey import Survey
from eligibility.audit.trace import RATIO, Trace, Update

_DISTANCE = 0.1  # how far each of the policy's own tensors is moved
_SAME = 1e-6  # share of a gradient that is rounding


@dataclass(frozen=True)
class _Repeated:
    """Two optimizer steps of a path that got the same gradient, counted from 0."""

    trace: Trace
    first: int
    later: int


def with_measured_ratio(survey: Survey, runner: Runner) -> Survey:
    """The survey with a note of the ratio in its steps, where one is measured and not yet seen."""
    if any(RATIO in trace.notes for trace in survey.traces):
        return survey
    repeated = next(filter(None, (_repeated(trace, survey) for trace in survey.traces)), None)
    if repeated is None or not _is_corrected(repeated, survey, runner):
        return survey
    noted = tuple(replace(trace, notes=(*trace.notes, RATIO)) for trace in survey.traces)
    return replace(survey, traces=noted)


def _repeated(trace: Trace, survey: Survey) -> _Repeated | None:
    """Two steps with one gradient on the same decisions, whose actions no parameter moves."""
    if any(draw.loc is not None or draw.density is not None for draw in trace.draws):
        return None
    seen: dict[tuple[int, tuple[float, ...]], int] = {}
    for number, update in enumerate(trace.updates):
        row = _row(update, survey)
        if row.any() and seen.setdefault((update.steps_before, tuple(row)), number) != number:
            return _Repeated(trace, seen[update.steps_before, tuple(row)], number)
    return None


def _is_corrected(repeated: _Repeated, survey: Survey, runner: Runner) -> bool:
    """Whether the later gradient is another one if the policy has moved since it acted."""
    own = sorted(survey.own)
    job = Job(
        repeated.trace.picked, survey.size, survey.directions_each, tensor=own[0],
        also=tuple(own[1:]), distance=_DISTANCE, raised=survey.raised,
    )  # fmt: skip
    rows = []
    for after in (0, repeated.first + 1):
        updates = runner.run(replace(job, moved_after=after)).updates
        if len(updates) <= repeated.later:
            return False
        rows.append(_row(updates[repeated.later], survey))
    before, since = rows
    return before.shape == since.shape and not np.allclose(
        before, since, rtol=0.0, atol=_SAME * float(np.abs(before).max(initial=0.0))
    )


def _row(update: Update, survey: Survey) -> Array:
    """The gradient that a step got, along the directions of the policy's own tensors."""
    along = (update.along(tensor) for tensor in sorted(survey.own))
    return np.array([number for row in along if row is not None for number in row])
