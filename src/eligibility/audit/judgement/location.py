"""Where in the user's program a fault is."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from eligibility.audit.faults import FAULTS
from eligibility.audit.judgement import source_patterns
from eligibility.audit.judgement.losses import find_loss
from eligibility.audit.judgement.places import BLAME, IN_SCORING
from eligibility.audit.judgement.pointers import action_line, element_line, scored_line, update_call
from eligibility.audit.judgement.scoring import compare_scoring
from eligibility.audit.judgement.source import Source, mentioned_names, name_of, read_source
from eligibility.audit.running.survey import Survey
from eligibility.audit.trace import Trace
from eligibility.errors import InvalidValueError

# Faults of what the loss is made of, and those whose numbers tell where they are: see `places`.
_IN_LOSS = (
    "returns-unused",
    "probability-not-log-probability",
    "unexplained",
    "autoreset-step-trained-on",
)


def locate(
    rule: str, survey: Survey, source: Source | None, place: tuple[str, int] | None = None
) -> tuple[str, int]:
    """File and line of the statement behind ``rule``, as well as the text allows.

    Args:
        rule: Identifier of the fault.
        survey: The observations.
        source: The program's text, if it is there.
        place: Where the loss is computed; None: where ``backward`` was called.
    """
    file, backward = place or _common([*_backward_calls(survey)])
    if source is not None and file and file != str(source.path):
        source = _module(file)
    if source is None:
        return file, backward
    return str(source.path), _line(rule, survey, source, backward)


def _backward_calls(survey: Survey) -> Iterator[tuple[str, int]]:
    """Where ``backward`` was called before each step that moves the policy, or before any."""
    for trace in survey.traces:
        moving = [
            update.backward
            for update in trace.updates
            if any(row and any(row) for i, row in enumerate(update.ascent) if i in survey.policy)
        ]
        yield from moving or (update.backward for update in trace.updates)


def _module(file: str) -> Source | None:
    """The text of a module of the program's, if it can be read."""
    with suppress(InvalidValueError):
        return read_source(Path(file))
    return None


def _line(rule: str, survey: Survey, source: Source, backward: int) -> int:
    found = find_loss(source, backward)
    loss = found.built
    if rule == "wrong-sign":
        return found.signed
    if rule == "probability-not-log-probability" and found.by_hand:
        return scored_line(source, loss) or loss
    if rule == "immediate-reward" and _early(survey):
        return update_call(source, found.taken) or loss
    if line := source_patterns.written(rule, source):
        return line
    if rule in _IN_LOSS or (rule in BLAME and rule not in IN_SCORING):
        return loss
    if rule == "entropy-sign":
        near = source.line_where(_adds_entropy, near=found.taken)
        return near or loss
    if rule in ("several-updates-without-ratio", "gradients-not-zeroed"):
        return found.taken
    if rule == "stale-batch":
        kept = source.kept_list_line() or source_patterns.kept_choice_line(source)
        if kept:
            return kept
    if rule == "argmax-action" and (made := action_line(source)):
        return made
    if rule == "baseline-sees-own-return":
        moved = source.line_where(partial(_moves, names=_subtracted(source)), near=loss)
        if moved:
            return moved
    scores = [score for trace in survey.traces for score in trace.scores]
    learnt = [score for score in scores if score.differentiable]
    scored = _common([score.place for score in learnt or scores])[1]
    tables = not any(score.values for score in scores)  # of all actions, for many uses
    if rule == "behaviour-not-scored" and tables and compare_scoring(survey):
        return action_line(source) or scored or loss
    if rule in IN_SCORING:
        return scored or scored_line(source, loss) or loss
    if rule == "component-not-scored" and scored:
        return element_line(source, scored) or scored
    if rule == "mask-in-acting-only" and scored:
        return source.origin(source.origin(scored))
    if rule == "last-step-dropped" and (cut := source_patterns.shortened_line(source, loss)):
        return cut
    for word in FAULTS[rule].look:
        line = source.line_where(partial(_mentions, word=word), near=max(loss - 1, 0))
        if line and line != loss:
            return line
    return action_line(source) if rule == "acting-policy-stale" else loss


def _early(survey: Survey) -> bool:
    """Whether the optimizer steps after single steps of an episode that goes on."""
    return any(
        0 < update.steps_before < len(trace.steps)
        and update.steps_before == number + 1
        and trace.steps[number].episode == trace.steps[number + 1].episode
        for trace in survey.traces
        for number, update in enumerate(trace.updates)
    )


def _subtracted(source: Source) -> set[str]:
    """Names that stand alone behind a minus sign."""
    parts = (node for node in ast.walk(source.tree) if isinstance(node, ast.BinOp))
    return {name_of(part.right) for part in parts if isinstance(part.op, ast.Sub)} - {""}


def _moves(statement: ast.stmt, names: set[str]) -> bool:
    """Whether a statement makes the new value of one of ``names`` from its old one."""
    if isinstance(statement, ast.AugAssign):
        return name_of(statement.target) in names
    if not isinstance(statement, ast.Assign):
        return False
    target = name_of(statement.targets[0])
    return target in names and target in map(name_of, ast.walk(statement.value))


def first_error(traces: tuple[Trace, ...]) -> tuple[str, int]:
    """Where the first run that failed did."""
    return next(((t.file, t.line) for t in traces if t.line), ("", 0))


def _common(places: list[tuple[str, int]]) -> tuple[str, int]:
    counted = Counter(place for place in places if place[1])
    return counted.most_common(1)[0][0] if counted else ("", 0)


def _adds_entropy(statement: ast.stmt) -> bool:
    """Whether a statement is about a loss and an entropy."""
    names = mentioned_names(statement)
    return all(any(part in name for name in names) for part in ("loss", "entrop"))


def _mentions(statement: ast.stmt, word: str) -> bool:
    """Whether a statement uses a name; "a+b": a name, and another one that contains b."""
    name, _, part = word.partition("+")
    names = mentioned_names(statement)
    return name in names and any(part in other for other in names)
