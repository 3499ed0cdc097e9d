"""A program whose first update says nothing, from its second update on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from eligibility.audit.job import Job, ProbeSize
from eligibility.audit.running.rounds import renumbered
from eligibility.audit.running.runner import OtherRunner, Runner
from eligibility.audit.trace import Step, Trace

_SEED = 1  # of the path to the first update


class FromSecond(OtherRunner):
    """Runs a program on one path to its first update; what comes then is all that is told."""

    def __init__(self, runner: Runner) -> None:
        super().__init__(runner)
        self._known: dict[tuple[ProbeSize, bool], Trace] = {}

    def start(self, job: Job) -> Callable[[], Trace]:
        """Begin a run."""
        first = self._first(job)
        if not first.updates:
            return partial(replace, first)
        held = len(first.updates)
        given = first.picked[: first.updates[-1].draws_before]
        earned = tuple(step.reward for step in _before(first) if step.executed)
        whole = replace(
            job,
            prescribed=given + job.prescribed,
            stop_after=None if job.stop_after is None else len(given) + job.stop_after,
            moved_after=job.moved_after and held + job.moved_after,
            held=held + job.held,
            perturbed=tuple(held + step for step in job.perturbed),
            rewards=earned + job.rewards if job.rewards else (),
        )
        answer = self._runner.start(whole)
        return lambda: _rest(answer(), first)

    def _first(self, job: Job) -> Trace:
        """The path to the first update, of the same problem."""
        key = job.size, job.raised
        if key not in self._known:
            plain = Job((), job.size, job.directions, seed=_SEED, raised=job.raised)
            self._known[key] = self._runner.run(plain)
        return self._known[key]


def _before(first: Trace) -> tuple[Step, ...]:
    return first.steps[: first.updates[-1].steps_before]


def _rest(trace: Trace, first: Trace) -> Trace:
    """What a run did after its first update, counted from there."""
    last = first.updates[-1]
    held, steps, draws, scores = (
        len(first.updates), last.steps_before, last.draws_before, last.scores_before,
    )  # fmt: skip
    return replace(
        trace,
        draws=trace.draws[draws:],
        known=max(trace.known - draws, 0),
        given=max(trace.given - draws, 0),
        steps=renumbered(
            [
                replace(step, groups=tuple(tuple(d - draws for d in g) for g in step.groups))
                for step in trace.steps[steps:]
            ]
        ),
        updates=tuple(
            replace(
                update,
                steps_before=update.steps_before - steps,
                draws_before=update.draws_before - draws,
                scores_before=update.scores_before - scores,
            )
            for update in trace.updates[held:]
        ),
        scores=tuple(
            replace(score, steps_before=score.steps_before - steps)
            for score in trace.scores[scores:]
        ),
        facts=tuple(
            replace(fact, update=fact.update - held) for fact in trace.facts if fact.update >= held
        ),
        made=tuple(
            replace(made, steps_before=made.steps_before - steps)
            for made in trace.made
            if made.steps_before >= steps
        ),
        slopes=tuple(
            replace(slope, draw=slope.draw - draws) for slope in trace.slopes if slope.draw >= draws
        ),
    )
