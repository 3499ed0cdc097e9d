"""A program whose run begins with something to leave out: only the rest is reported."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from eligibility.audit.job import SIZES, Job
from eligibility.audit.running.rounds import renumbered
from eligibility.audit.running.runner import OtherRunner, Runner
from eligibility.audit.trace import Step, Trace

_SEED = 1  # of the path through the beginning


class Beginning(NamedTuple):
    """How much of a run comes before the part that is reported."""

    updates: int = 0  # steps of optimizers
    steps: int = 0  # transitions
    draws: int = 0  # random choices
    scores: int = 0  # calls of ``log_prob``


class LaterPart(OtherRunner):
    """Runs a program on one path through its beginning, and reports what comes after it."""

    def __init__(self, runner: Runner, beginning_of: Callable[[Trace], Beginning]) -> None:
        super().__init__(runner)
        self._beginning_of = beginning_of
        self._known: dict[Job, Trace] = {}

    def start(self, job: Job) -> Callable[[], Trace]:
        """Begin a run."""
        first = self._first(job)
        left = self._beginning_of(first)
        given = first.picked[: left.draws]
        earned = tuple(step.reward for step in first.steps[: left.steps] if step.executed)
        whole = replace(
            job,
            prescribed=given + job.prescribed,
            stop_after=None if job.stop_after is None else len(given) + job.stop_after,
            moved_after=job.moved_after and left.updates + job.moved_after,
            held=left.updates + job.held,
            perturbed=tuple(left.updates + step for step in job.perturbed),
            rewards=earned + job.rewards if job.rewards else (),
        )
        answer = self._runner.start(whole)
        return lambda: _rest(answer(), left)

    def _first(self, job: Job) -> Trace:
        """The path through the beginning, of the same problem."""
        plain = replace(job.plain(), seed=_SEED)
        if plain not in self._known:
            self._known[plain] = self._runner.run(plain)
        return self._known[plain]


def from_second(runner: Runner) -> Runner:
    """A program whose first update says nothing, from its second update on."""
    return LaterPart(runner, _first_update)


def from_training(runner: Runner, first: Trace) -> tuple[Runner, int]:
    """The program without the episodes that it plays before it trains, and how many steps they had.

    An agent that is evaluated, or plays at random, before its first episode of training does so
    without a graph, and what it earns there moves no gradient.
    """
    left = _played(first)
    if not left.steps:
        return runner, 0
    others = tuple(step.reward + 1.0 + number for number, step in enumerate(first.steps))
    moved = runner.run(replace(Job((), SIZES[0]), rewards=others[: left.steps]))
    if [update.ascent for update in moved.updates] != [update.ascent for update in first.updates]:
        return runner, 0
    return LaterPart(runner, _played), left.steps


def _first_update(trace: Trace) -> Beginning:
    """Everything up to the last optimizer step of the first update."""
    if not trace.updates:
        return Beginning()
    last = trace.updates[-1]
    return Beginning(len(trace.updates), last.steps_before, last.draws_before, last.scores_before)


def _played(trace: Trace) -> Beginning:
    """Whole episodes before those that the first log-probabilities with a graph are of.

    Or before the first action that a policy draws, as where an environment is tried out.
    """
    attached = [number for number, score in enumerate(trace.scores) if score.differentiable]
    if not attached or not trace.updates:
        return Beginning()
    first = trace.scores[attached[0]]
    made = first.steps_before
    starts: tuple[int, ...] = (made - 1, made)  # an action is scored after its step, or before
    if made == trace.updates[0].steps_before and first.value_shape:  # or all of a batch together
        starts = (made - first.value_shape[0],)
    for start in (_first_of_policy(trace), *starts):
        if 0 < start < trace.updates[0].steps_before and _begins(trace.steps, start):
            draws = [draw for group in trace.steps[start].groups for draw in group]
            known = min(draws, default=0)
            for _ in {step.environment for step in trace.steps[start:]}:  # their episodes start
                if known and trace.draws[known - 1].source == "environment":
                    known -= 1
            return Beginning(0, start, known, attached[0]) if known else Beginning()
    return Beginning()


def _first_of_policy(trace: Trace) -> int:
    """The first step whose action a policy draws; 0 if none does."""
    drawn = (
        number
        for number, step in enumerate(trace.steps)
        if any(trace.draws[draw].source == "action" for group in step.groups for draw in group)
    )
    return next(drawn, 0)


def _begins(steps: Sequence[Step], number: int) -> bool:
    """Whether an episode begins with a step."""
    step = steps[number]
    return all(
        (step.environment, step.episode) != (before.environment, before.episode)
        for before in steps[:number]
    )


def _rest(trace: Trace, left: Beginning) -> Trace:
    """What a run did after its beginning, counted from there."""
    held, steps, draws, scores = left
    less = {
        "steps_before": steps, "draws_before": draws, "scores_before": scores, "update": held,
        "draw": draws,
    }  # fmt: skip

    def counted(records: Iterable[Any]) -> tuple[Any, ...]:
        return tuple(
            replace(one, **{n: getattr(one, n) - k for n, k in less.items() if hasattr(one, n)})
            for one in records
        )

    return replace(
        trace,
        draws=trace.draws[draws:],
        known=max(trace.known - draws, 0),
        given=max(trace.given - draws, 0),
        steps=renumbered([_without_earlier(step, draws) for step in trace.steps[steps:]]),
        updates=counted(trace.updates[held:]),
        scores=counted(trace.scores[scores:]),
        facts=counted(fact for fact in trace.facts if fact.update >= held),
        made=counted(made for made in trace.made if made.steps_before >= steps),
        slopes=counted(slope for slope in trace.slopes if slope.draw >= draws),
    )


def _without_earlier(step: Step, draws: int) -> Step:
    """A step's sampling calls, counted from there: an action may be drawn and never executed."""
    later = (group for group in step.groups if all(draw >= draws for draw in group))
    return replace(step, groups=tuple(tuple(draw - draws for draw in group) for group in later))
