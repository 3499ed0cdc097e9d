"""Where in the user's program a fault is."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

from eligibility.audit.faults import FAULTS
from eligibility.audit.judgement import source_patterns
from eligibility.audit.judgement.losses import Loss, find_loss
from eligibility.audit.judgement.places import BLAME, IN_SCORING
from eligibility.audit.judgement.pointers import action_line, element_line, scored_line, update_call
from eligibility.audit.judgement.scoring import compare_scoring
from eligibility.audit.judgement.source import Source, mentioned_names, name_of, read_source
from eligibility.audit.running.survey import Survey
from eligibility.audit.trace import Score, Trace
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
    program = _Program(survey, source, find_loss(source, backward))
    there, line = program.scored_at
    if rule in _OF_SCORES and there not in ("", str(source.path)):
        module = _module(there)
        return there, line if module is None else _line(rule, replace(program, source=module))
    return str(source.path), _line(rule, program)


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


@dataclass(frozen=True)
class _Program:
    """Where to look: the program as it was seen and as it is written, and its loss."""

    survey: Survey
    source: Source
    loss: Loss

    @cached_property
    def scores(self) -> list[Score]:
        """What was scored on all paths."""
        return [score for trace in self.survey.traces for score in trace.scores]

    @cached_property
    def scored_at(self) -> tuple[str, int]:
        """File and line where most log-probabilities with a gradient are made; or "" and 0."""
        learnt = [score for score in self.scores if score.differentiable]
        return _common([score.place for score in learnt or self.scores])

    @property
    def scored(self) -> int:
        """That line."""
        return self.scored_at[1]


def _line(rule: str, program: _Program) -> int:
    """The line that the first of these knows of; else the loss."""
    in_loss = rule in _IN_LOSS or (rule in BLAME and rule not in IN_SCORING)
    looks: tuple[_Look, ...] = (
        _TOLD_BY_RUNS.get(rule, _nowhere),
        lambda program: source_patterns.written(rule, program.source),
        _at_loss if in_loss else _LOOKS.get(rule, _nowhere),
        partial(_named_line, rule),
    )
    return next((line for look in looks if (line := look(program))), program.loss.built)


def _nowhere(program: _Program) -> int:
    return 0


def _at_loss(program: _Program) -> int:
    return program.loss.built


def _score_by_hand(program: _Program) -> int:
    if not program.loss.by_hand:
        return 0
    return scored_line(program.source, program.loss.built) or program.loss.built


def _update_within_episode(program: _Program) -> int:
    if not _early(program.survey):
        return 0
    return update_call(program.source, program.loss.taken) or program.loss.built


def _entropy_in_loss(program: _Program) -> int:
    return program.source.line_where(_adds_entropy, near=program.loss.taken) or program.loss.built


def _shortened(program: _Program) -> int:
    return source_patterns.shortened_line(program.source, program.loss.built)


def _kept_steps(program: _Program) -> int:
    return program.source.kept_list_line() or source_patterns.kept_choice_line(program.source)


def _moved_baseline(program: _Program) -> int:
    names = _subtracted(program.source)
    return program.source.line_where(partial(_moves, names=names), near=program.loss.built)


def _where_scored(program: _Program) -> int:
    return program.scored or scored_line(program.source, program.loss.built) or program.loss.built


def _where_acted_or_scored(program: _Program) -> int:
    tables = not any(score.values for score in program.scores)  # of all actions, for many uses
    acted = action_line(program.source) if tables and compare_scoring(program.survey) else 0
    return acted or _where_scored(program)


def _element_scored(program: _Program) -> int:
    line = program.scored
    return line and (element_line(program.source, line) or line)


def _made_without_mask(program: _Program) -> int:
    return program.scored and program.source.origin(program.source.origin(program.scored))


def _named_line(rule: str, program: _Program) -> int:
    """The statement next to the loss that uses a name such as this fault's code has."""
    for word in FAULTS[rule].look:
        using = partial(_mentions, word=word)
        line = program.source.line_where(using, near=max(program.loss.built - 1, 0))
        if line and line != program.loss.built:
            return line
    return action_line(program.source) if rule == "acting-policy-stale" else 0


_Look = Callable[[_Program], int]  # 0: it cannot tell
# What was seen of the runs or of the loss tells more than any pattern of text.
_TOLD_BY_RUNS: dict[str, _Look] = {
    "wrong-sign": lambda program: program.loss.signed,
    "probability-not-log-probability": _score_by_hand,
    "immediate-reward": _update_within_episode,
}
_OF_SCORES = {*IN_SCORING, "component-not-scored", "mask-in-acting-only", "behaviour-not-scored"}
_LOOKS: dict[str, _Look] = {
    "entropy-sign": _entropy_in_loss,
    "several-updates-without-ratio": lambda program: program.loss.taken,
    "gradients-not-zeroed": lambda program: program.loss.taken,
    "stale-batch": _kept_steps,
    "argmax-action": lambda program: action_line(program.source),
    "baseline-sees-own-return": _moved_baseline,
    "component-not-scored": _element_scored,
    "mask-in-acting-only": _made_without_mask,
    "last-step-dropped": _shortened,
    "only-last-step": _shortened,
    **dict.fromkeys(IN_SCORING, _where_scored),
    "behaviour-not-scored": _where_acted_or_scored,
}


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
