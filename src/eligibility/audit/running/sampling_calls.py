"""Which of a program's sampling calls made the action that was executed."""

from __future__ import annotations

from collections import Counter
from itertools import chain

import numpy as np

from eligibility.audit.trace import Step, Trace

Action = tuple[float, ...]
_COMPARED = 200  # values and actions by which a sampling call is told from another


def executed_draws(step: Step, call: int) -> tuple[int, ...]:
    """The choices that made the action of ``step``: of sampling call ``call``, from the end."""
    return step.groups[call] if -len(step.groups) <= call < 0 else ()


def executing_call(traces: tuple[Trace, ...]) -> int:
    """Which sampling call before a step made its action, counted from the end.

    The one whose values fit the action on most steps; of those that fit equally often, such as none
    where actions are squashed, the one whose values the action rises or falls with; else the last.
    Where that one leaves the action open, it is the last whose outcome tells it: a number drawn by
    hand may be below a probability for the action 1.
    """
    fits: Counter[int] = Counter()
    for step in chain.from_iterable(trace.steps for trace in traces):
        for call in range(-len(step.groups), 0):
            fits[call] += step.matches[call]
    best = max(fits.values(), default=0)
    tied = [call for call in fits if fits[call] == best]
    likeliest = max(tied, key=lambda call: (_concordance(traces, call), call), default=-1)
    if _leaves_open(traces, likeliest):
        return max((call for call in fits if _tells(traces, call)), default=likeliest)
    return likeliest


def _outcomes(traces: tuple[Trace, ...], call: int) -> set[tuple[tuple[int, ...], Action]]:
    """The outcomes of a sampling call of whole numbers, each with the action that followed."""
    return {
        (tuple(trace.draws[place].picked for place in places), step.action)
        for trace in traces
        for step in trace.steps
        if (places := executed_draws(step, call))
        and all(trace.draws[place].value is None for place in places)
    }


def _leaves_open(traces: tuple[Trace, ...], call: int) -> bool:
    """Whether several actions followed one outcome."""
    followed = Counter(picked for picked, _ in _outcomes(traces, call))
    return max(followed.values(), default=0) > 1


def _tells(traces: tuple[Trace, ...], call: int) -> bool:
    """Whether each outcome has one action, and each action one outcome."""
    pairs = _outcomes(traces, call)
    one_to_one = len(pairs) == len({action for _, action in pairs}) > 1
    return one_to_one and not _leaves_open(traces, call)


def _concordance(traces: tuple[Trace, ...], call: int) -> float:
    """|τ| of Kendall between the first value of a sampling call and the first action number."""
    pairs = {
        (trace.draws[positions[0]].value, step.action[0])
        for trace in traces
        for step in trace.steps
        if step.action and (positions := executed_draws(step, call))
    }
    numbers = np.array([pair for pair in pairs if pair[0] is not None][:_COMPARED], dtype=float)
    if len(numbers) <= 1:
        return 0.0
    left, right = (np.sign(column[:, None] - column[None, :]) for column in numbers.T)
    return abs(float((left * right).sum())) / (len(numbers) * (len(numbers) - 1))
