"""Where in the user's program a fault is."""

from __future__ import annotations

import ast
from collections import Counter

from eligibility.audit.knowledge import FAULTS
from eligibility.audit.source import Source, assigned_names, called_names
from eligibility.audit.survey import Survey
from eligibility.audit.trace import Trace


def locate(rule: str, survey: Survey, source: Source | None) -> tuple[str, int]:
    """File and line of the statement behind ``rule``, as well as the text allows."""
    file, backward = _common([u.backward for t in survey.traces for u in t.updates])
    if source is None or (file and file != str(source.path)):
        return file, backward
    own = str(source.path)
    loss = source.loss_line(backward) if backward else 0
    if rule in ("mean-log-prob-times-sum-of-returns", "broadcast", "wrong-sign", "unexplained"):
        return own, loss
    if rule in ("scored-other-action", "most-likely-action-scored", "behaviour-not-scored"):
        scored = _common([s.place for t in survey.traces for s in t.scores])
        if scored[1]:
            return scored
    words = FAULTS[rule].look
    line = source.line_where(lambda s: _mentions(s, words), near=loss)
    return own, line or loss


def first_error(traces: tuple[Trace, ...]) -> tuple[str, int]:
    """Where the first run that failed did."""
    return next(((t.file, t.line) for t in traces if t.line), ("", 0))


def _common(places: list[tuple[str, int]]) -> tuple[str, int]:
    counted = Counter(place for place in places if place[1])
    return counted.most_common(1)[0][0] if counted else ("", 0)


def _mentions(statement: ast.stmt, words: tuple[str, ...]) -> bool:
    if called_names(statement) & set(words) or assigned_names(statement) & set(words):
        return True
    return any(isinstance(node, ast.Name) and node.id in words for node in ast.walk(statement))
