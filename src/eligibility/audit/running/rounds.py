"""Runs the program on to its second update: the first one on one fixed path, the second on all.

The parameters are held still, so the policy of the second update is that of the first, and what
the first one has told of its eligibilities holds. Two runs more move them after an optimizer step:
they show whether what should have been refreshed was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from eligibility.audit.choices import MAX_UPDATES, count_of_paths
from eligibility.audit.job import SIZES, Job
from eligibility.audit.running.runner import Runner, run_all
from eligibility.audit.running.survey import (
    RAN,
    Progress,
    Survey,
    directions_each,
    enumerated,
    sampled,
    with_more_slopes,
)
from eligibility.audit.trace import Step, Trace

_SCOUTS = 4
_ENUMERATED = 40  # paths of the second update that are all visited; of more, some are drawn
_SAMPLES, _SAMPLED_STEPS, _FEWEST = 24, 4000, 3
_INSPECTED = 300  # steps up to which a run remembers the line of each operation
_WHAT = "paths of the second update"


@dataclass(frozen=True)
class Rounds:
    """What was seen of the first two updates; an update may be several steps of optimizers.

    Attributes:
        first: The path to the end of the first update that the others go on from.
        inspected: That path and one on to the end of the second update, with parameters that were
            moved between them, and the facts of every loss's graph.
        repeated: The path of the first update, where each optimizer moves its parameters in its
            first step; None if there is only one step.
        second: The second update alone: its decisions and its gradients; None if there is none.
        whole: The second update's gradients, with the decisions of both.
        ends: The steps of the first update that are the last of some tensor's.
    """

    first: Trace
    inspected: Trace
    repeated: Trace | None
    second: Survey | None
    whole: Survey | None
    ends: tuple[int, ...]

    @property
    def held(self) -> int:
        """Optimizer steps of the first update."""
        return len(self.first.updates)


def observe_rounds(base: Survey, runner: Runner, paths: bool, progress: Progress) -> Rounds | None:
    """Run on to the second update; None if no path of the first one has a gradient."""
    size = SIZES[1] if base.size == SIZES[0] else base.size
    start = Job((), size, directions=1, raised=base.raised)
    found = [*run_all(runner, (replace(start, seed=seed) for seed in range(_SCOUTS)))]
    first = max(filter(_usable, found), key=_told, default=None)
    if first is None:
        return None
    held, last = len(first.updates), first.updates[-1]
    given = first.picked[: last.draws_before]
    job = Job(given, size, directions_each(len(first.shapes)), raised=base.raised, held=held)
    short = len(first.steps) <= _INSPECTED
    # the first outcome of every choice: the longest episodes
    ends = _steps_by_tensor(first, max)
    inspected = runner.run(replace(job, perturbed=ends, inspected=short))
    repeated = None
    if short and held > 1 and "ratio" in first.notes:
        begins = _steps_by_tensor(first, min)
        repeated = runner.run(replace(job, held=0, perturbed=begins, inspected=True))
    traces: tuple[Trace, ...] = ()
    if paths and _goes_on(inspected, held):
        predicted = count_of_paths(trace.probability for trace in found)
        traces, exhaustive = _paths(runner, job, len(first.steps), predicted, progress)
    if not any(_goes_on(trace, held) for trace in traces):
        return Rounds(first, inspected, repeated, None, None, ends)
    common = replace(base, size=size, exhaustive=exhaustive, predicted=predicted)
    alone = replace(
        common, traces=tuple(_from(trace, first, last.steps_before) for trace in traces)
    )
    alone = with_more_slopes(alone, runner, job)
    both = replace(alone, traces=tuple(_from(trace, first, 0) for trace in traces))
    return Rounds(first, inspected, repeated, alone, both, ends)


def of_other_rewards(rounds: Rounds, runner: Runner, added: Sequence[float]) -> Survey:
    """The longest path of the second update, with these added to the rewards of the first."""
    assert rounds.second is not None
    first, base = rounds.first, rounds.second
    before = first.updates[-1].steps_before
    earned = [step.reward for step in first.steps[:before] if step.executed]
    path = max(base.traces, key=lambda trace: len(trace.steps))
    directions = directions_each(len(first.shapes))
    job = Job(path.picked, base.size, directions, raised=base.raised, held=rounds.held)
    jobs = (replace(job, rewards=tuple(reward + more for reward in earned)) for more in added)
    traces = tuple(_from(trace, first, before) for trace in run_all(runner, jobs))
    return replace(base, traces=traces, exhaustive=False)


def _usable(trace: Trace) -> bool:
    """Whether the first update of a path is complete, finite and not zero."""
    rows = [row for update in trace.updates for row in update.ascent if row is not None]
    numbers = np.array([number for row in rows for number in row])
    complete = trace.outcome == "updated" and 0 < len(trace.updates) < MAX_UPDATES
    return complete and bool(np.isfinite(numbers).all() and numbers.any())


def _told(trace: Trace) -> tuple[int, bool]:
    """How much a path carries over: its steps, and whether an episode goes on after it."""
    last = trace.steps[-1] if trace.steps else None
    return len(trace.steps), last is not None and not (last.terminated or last.truncated)


def _steps_by_tensor(trace: Trace, which: Callable[[list[int]], int]) -> tuple[int, ...]:
    """The optimizer steps, counted from 1, that are the first or the last of some tensor."""
    of_tensors = (
        [number for number, update in enumerate(trace.updates, 1) if update.along(tensor)]
        for tensor in range(len(trace.shapes))
    )
    return tuple(sorted({which(steps) for steps in of_tensors if steps}))


def _goes_on(trace: Trace, held: int) -> bool:
    """Whether a run came to its second update, or failed on the way."""
    return len(trace.updates) > held or trace.outcome not in RAN


def _paths(
    runner: Runner, job: Job, steps: int, predicted: int, progress: Progress
) -> tuple[tuple[Trace, ...], bool]:
    """The paths of the second update, and whether they are all; else some drawn at random."""
    if predicted <= _ENUMERATED:
        every = enumerated(runner, job, 2 * _ENUMERATED, predicted, progress, _WHAT)
        if every is not None:
            return every, True
    samples = max(_FEWEST, min(_SAMPLES, _SAMPLED_STEPS // max(steps, 1)))
    drawn = sampled(runner, [replace(job, seed=seed) for seed in range(samples)], progress, _WHAT)
    return tuple(replace(trace, given=len(job.prescribed)) for trace in drawn), False


def _from(trace: Trace, first: Trace, step: int) -> Trace:
    """The part of a run that belongs to the second update, with its decisions from ``step`` on."""
    scores = first.updates[-1].scores_before
    return replace(
        trace,
        steps=renumbered(trace.steps[step:]),
        updates=trace.updates[len(first.updates) :],
        scores=trace.scores[scores:],
    )


def renumbered(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Steps whose environments count their episodes from 0."""
    lowest: dict[int, int] = {}
    for step in steps:
        lowest[step.environment] = min(lowest.get(step.environment, step.episode), step.episode)
    return tuple(replace(step, episode=step.episode - lowest[step.environment]) for step in steps)
