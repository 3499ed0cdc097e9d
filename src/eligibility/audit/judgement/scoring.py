"""Compares what the program scored with what it did: the action, and the distribution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eligibility.audit.running.sampling_calls import executed_draws, executing_call
from eligibility.audit.running.survey import Survey
from eligibility.audit.trace import Draw, Score, Step, Trace


@dataclass(frozen=True)
class Scoring:
    """What the calls of ``log_prob`` show.

    Attributes:
        rule: The fault, or empty.
        evidence: What was seen.
    """

    rule: str
    evidence: str


def compare_scoring(survey: Survey) -> Scoring | None:
    """The first disagreement between acting and scoring; None if there is none to be seen.

    Where one of several passes agrees, the others may be a call whose result nobody uses.
    """
    call = executing_call(survey.traces)
    for trace in survey.traces:
        passes = scored_choices(trace, call)
        if any(
            _in_another_order([pair for pairs in each for pair in pairs])
            for each in (passes, scored_choices(trace, call, executed=True))
        ):
            continue
        told = [_disagreement(pairs) for pairs in passes]
        found = told[0] if told and all(told) else None
        if found is not None:
            if found.rule == "scored-other-action" and _always_likeliest(survey, call):
                return Scoring("most-likely-action-scored", found.evidence)
            if found.rule == "scored-other-action" and _follows_draws(survey, call):
                text = "the scored number rises or falls with the one that was drawn"
                return Scoring("transformed-action-scored", f"{found.evidence}; {text}")
            return found
    return None


@dataclass(frozen=True)
class Row:
    """One scored action: its distribution (probabilities, or mean and deviation) and its value."""

    numbers: tuple[float, ...]
    gaussian: bool
    value: float | None


Pair = tuple[Step, Draw, Row]
_FEW = 64  # choices of a path of which all scores were kept
_SAME = 1e-6  # difference of probabilities, means and deviations that is rounding


def _disagreement(pairs: list[Pair]) -> Scoring | None:
    if _in_another_order(pairs):
        return None
    return next((s for s in (_compare(*pair) for pair in pairs) if s is not None), None)


def scored_choices(trace: Trace, call: int, executed: bool = False) -> list[list[Pair]]:
    """(step, draw, what was scored) of every choice that made an action; none if it is not clear.

    Where only those count that were ``executed``, what a vector environment ignored is left out.

    Where some scores carry a gradient, the others are those of an old policy: they are left out. A
    program that scores while it acts says by the moment of the call which action it means. Else
    scores are matched to decisions in order: by rows of one batched call, or one call a decision,
    in one or several passes over the same data.
    """
    scores = [score for score in trace.scores if score.differentiable] or trace.scores
    decisions = [
        [(step, trace.draws[position]) for position in executed_draws(step, call)]
        for step in trace.steps
        if step.executed or not executed
    ]
    if not all(decisions):
        return []
    rows = None if executed else _while_acting(scores, decisions)
    if rows is None:
        rows = [row for score in scores for row in _rows(score)]
    flat = [choice for decision in decisions for choice in decision]
    if len(rows) < len(flat) <= _FEW:
        flat = _last_episodes(flat, rows)
    if not flat or not rows or len(rows) % len(flat):
        return []
    passes = [rows[start : start + len(flat)] for start in range(0, len(rows), len(flat))]
    return [[(*choice, row) for choice, row in zip(flat, each, strict=True)] for each in passes]


def _last_episodes(choices: list[tuple[Step, Draw]], rows: list[Row]) -> list[tuple[Step, Draw]]:
    """The choices of the last episodes, where each has a row; none if a row is of any choice.

    A program that tries its policy out before it trains scores nothing of that, and one that takes
    a part of its batch scores what acted.
    """
    last = choices[len(choices) - len(rows) :]
    acted = [_numbers_of(draw) for _, draw in choices]
    known = any(_is_close(row.numbers, own) for row in rows for own in acted)
    return [] if known or not last or last[0][0].time else last


def _in_another_order(pairs: Sequence[Pair]) -> bool:
    """Whether the rows are those of the choices, each with its action: actor by actor, say.

    Or episode by episode, each of them in several passes.
    """
    left = sorted((row for *_, row in pairs), key=lambda row: row.value is None)
    for _, draw, _ in pairs:
        own, taken = _numbers_of(draw), _taken(draw)
        rows = (
            number
            for number, row in enumerate(left)
            if _is_close(row.numbers, own)
            and (row.value is None or abs(row.value - taken) <= _SAME)
        )
        same = next(rows, None)
        if same is None:
            return False
        del left[same]
    return not left


def _is_close(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return len(one) == len(other) and bool(np.allclose(one, other, atol=_SAME))


def _numbers_of(draw: Draw) -> tuple[float, ...]:
    """The distribution that a choice was drawn from: mean and deviation, or probabilities."""
    if draw.loc is not None and draw.scale is not None and draw.value is not None:
        return (draw.loc, draw.scale)
    return tuple(draw.probs)


def _taken(draw: Draw) -> float:
    """What was drawn."""
    return float(draw.value) if draw.value is not None else float(draw.picked)


def _while_acting(
    scores: Sequence[Score], decisions: list[list[tuple[Step, Draw]]]
) -> list[Row] | None:
    """The rows of the calls between two transitions, where each has one row for each choice."""
    found: list[Row] = []
    step = 0
    while step < len(decisions):
        calls = [_rows(score) for score in scores if score.steps_before == step]
        rows = [row for call in calls for row in call]
        # The environments that step together: as many as have a choice for each row.
        end, choices = step, 0
        while end < len(decisions) and choices < len(rows):
            choices += len(decisions[end])
            end += 1
        if choices != len(rows) or not rows or (len(calls) > 1 and end - step > 1):
            return None
        found += rows
        step = end
    return found


def _rows(score: Score) -> list[Row]:
    count = int(np.prod(score.batch_shape)) if score.batch_shape else 1
    if not score.probs:
        return []
    width = len(score.probs) // count
    if not score.values:
        parts = [score.probs[i * width : (i + 1) * width] for i in range(count)]
        return [Row(part, False, None) for part in parts]
    broadcast = count > 1 and score.value_shape != score.batch_shape
    if len(score.values) != count or broadcast:
        return []
    if score.scales:
        columns = zip(score.probs, score.scales, score.values, strict=True)
        return [Row((loc, scale), True, value) for loc, scale, value in columns]
    return [
        Row(score.probs[i * width : (i + 1) * width], False, score.values[i]) for i in range(count)
    ]


def _compare(step: Step, draw: Draw, row: Row) -> Scoring | None:
    where = f"in state {step.state} at t = {step.time}"
    gaussian = draw.loc is not None and draw.scale is not None and draw.value is not None
    acted = _numbers_of(draw)
    if row.gaussian != gaussian or len(row.numbers) != len(acted):
        return None
    if not _is_close(row.numbers, acted):
        left = ", ".join(f"{number:.3f}" for number in acted)
        right = ", ".join(f"{number:.3f}" for number in row.numbers)
        masked = not gaussian and any(
            p == 0 and q > 0 for p, q in zip(draw.probs, row.numbers, strict=True)
        )
        rule = "mask-in-acting-only" if masked else "behaviour-not-scored"
        return Scoring(rule, f"{where} the program acted by [{left}] and scored [{right}]")
    taken = _taken(draw)
    if row.value is not None and abs(row.value - taken) > 1e-6:
        words = (
            "the number {:g} was drawn and {:g}" if gaussian else "action {:g} was taken and {:g}"
        )
        told = words.format(taken, row.value)
        return Scoring("scored-other-action", f"{where} {told} was scored")
    return None


def _always_likeliest(survey: Survey, call: int) -> bool:
    """Whether every scored action is the most likely one."""
    passes = [pairs for trace in survey.traces for pairs in scored_choices(trace, call)[:1]]
    rows = [row for pairs in passes for _, _, row in pairs]
    return all(
        row.value is not None
        and abs(row.value - (row.numbers[0] if row.gaussian else np.argmax(row.numbers))) < 1e-6
        for row in rows
    )


def _follows_draws(survey: Survey, call: int) -> bool:
    """Whether every scored number is the same function of the drawn one, which never turns."""
    seen: dict[int, set[tuple[float, float]]] = {}
    for pairs in (pairs for t in survey.traces for pairs in scored_choices(t, call)[:1]):
        for number, (step, draw, row) in enumerate(pairs):
            if not row.gaussian or row.value is None:
                return False
            component = sum(other is step for other, *_ in pairs[:number])
            seen.setdefault(component, set()).add((_taken(draw), row.value))
    for numbers in seen.values():
        drawn, scored = np.array(sorted(numbers)).T
        moves = np.diff(scored)[np.diff(drawn) > _SAME]
        again = np.abs(np.diff(scored)[np.diff(drawn) <= _SAME]).max(initial=0.0)
        turns = moves.min(initial=0.0) < -_SAME and moves.max(initial=0.0) > _SAME
        if turns or again > _SAME or not moves.any():
            return False
    return True


def probs_as_logits(survey: Survey) -> tuple[float, float] | None:
    """The range of probabilities that the policy can reach, if its logits are probabilities.

    ``Categorical(logits=p)`` with p on the simplex of K categories gives an action at most
    e/(e + K − 1) and at least 1/(e + K − 1).
    """
    notes = {note for trace in survey.traces for note in trace.notes}
    if "logits-on-simplex" not in notes or "logits-anywhere" in notes:
        return None
    draws = (d for t in survey.traces for d in t.draws if d.source == "action" and d.loc is None)
    k = len(next(draws).probs)
    return 1.0 / (np.e + k - 1.0), np.e / (np.e + k - 1.0)
