"""Compares what the program scored with what it did: the action, and the distribution."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eligibility.audit.survey import Survey, executed_draws, executing_call
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
    """The first disagreement between acting and scoring; None if there is none to be seen."""
    call = executing_call(survey.traces)
    for trace in survey.traces:
        pairs = _pairs(trace, call)
        found = next((s for s in (_compare(*pair) for pair in pairs) if s is not None), None)
        if found is not None:
            if found.rule == "scored-other-action" and _always_likeliest(survey, call):
                return Scoring("most-likely-action-scored", found.evidence)
            return found
    return None


def _pairs(trace: Trace, call: int) -> list[tuple[Step, Draw, tuple[float, ...], float]]:
    """(step, its draw, scored distribution, scored action) where one row was scored a decision.

    Scores are matched to decisions in order: by rows of one batched call, or one call a decision.
    """
    steps = [step for step in trace.steps if len(executed_draws(step, call)) == 1]
    rows = [row for score in trace.scores for row in _rows(score)]
    if len(rows) != len(steps) or len(steps) != len(trace.steps):
        return []
    return [
        (step, trace.draws[executed_draws(step, call)[0]], probs, value)
        for step, (probs, value) in zip(steps, rows, strict=True)
    ]


def _rows(score: Score) -> list[tuple[tuple[float, ...], float]]:
    count = int(np.prod(score.batch_shape)) if score.batch_shape else 1
    if not score.probs or len(score.values) != count or score.value_shape != score.batch_shape:
        return []
    width = len(score.probs) // count
    return [(score.probs[i * width : (i + 1) * width], score.values[i]) for i in range(count)]


def _compare(step: Step, draw: Draw, probs: tuple[float, ...], value: float) -> Scoring | None:
    where = f"in state {step.state} at t = {step.time}"
    if len(probs) != len(draw.probs):
        return None
    if not np.allclose(probs, draw.probs, atol=1e-6):
        acted = ", ".join(f"{p:.3f}" for p in draw.probs)
        scored = ", ".join(f"{p:.3f}" for p in probs)
        masked = any(p == 0 and q > 0 for p, q in zip(draw.probs, probs, strict=True))
        rule = "mask-in-acting-only" if masked else "behaviour-not-scored"
        return Scoring(rule, f"{where} the program acted by [{acted}] and scored [{scored}]")
    if int(value) != draw.picked:
        return Scoring(
            "scored-other-action",
            f"{where} action {draw.picked} was taken and action {int(value)} was scored",
        )
    return None


def _always_likeliest(survey: Survey, call: int) -> bool:
    """Whether every scored action is the most likely one."""
    pairs = [pair for trace in survey.traces for pair in _pairs(trace, call)]
    return all(int(value) == int(np.argmax(probs)) for _, _, probs, value in pairs)


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
