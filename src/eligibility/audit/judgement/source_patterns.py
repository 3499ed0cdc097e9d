"""Statements by which a fault is known in a program's text, whatever its names are."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from eligibility.audit.judgement.pointers import last_name, targets
from eligibility.audit.judgement.source import Source, mentioned_names


def written(rule: str, source: Source) -> int:
    """Line of the fault ``rule``, where what is written tells before any number does; or 0."""
    return _WRITTEN[rule](source) if rule in _WRITTEN else 0


def shortened_line(source: Source, loss: int) -> int:
    """Where a sequence loses its first or its last element, close to the loss; or 0."""
    return _near(source, _shortens, loss)


def _merged_flags_line(source: Source) -> int:
    """Where both flags of ``step`` become one that no loop or branch asks for; or 0.

    Or where a branch that asks for both of them puts 0 in the place of a value.
    """
    asked = {
        name
        for node in ast.walk(source.tree)
        if isinstance(node, (ast.While, ast.If, ast.IfExp))
        for name in mentioned_names(node.test)
    }
    for node in ast.walk(source.tree):  # done = over, after while not done
        if isinstance(node, ast.Assign) and asked & set(targets(node)):
            asked |= mentioned_names(node.value)
    flags = [names for node in ast.walk(source.tree) for names in _flags(node)]
    for line, statement in _headers(source.tree):
        if isinstance(statement, ast.stmt):
            made = set(targets(statement))
            read = mentioned_names(statement) - made
            if not made & asked and any(names <= read for names in flags):
                return line
    for node in ast.walk(source.tree):
        if isinstance(node, ast.If) and any(names <= mentioned_names(node.test) for names in flags):
            zeros = (each.lineno for each in node.body if _assigns_zero(each))
            if line := next(zeros, 0):
                return line
    return 0


def _assigns_zero(node: ast.stmt) -> bool:
    """Whether it gives a name a value that is made of 0."""
    if not isinstance(node, ast.Assign):
        return False
    numbers = [part.value for part in ast.walk(node.value) if isinstance(part, ast.Constant)]
    return bool(numbers) and not any(numbers)


def _constant_flag_line(source: Source) -> int:
    """Where one of several lists that grow at each step is given the same number each time."""
    for line, statement in _headers(source.tree):
        call = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(call, ast.Call) and last_name(call.func) == "append" and call.args:
            value = call.args[-1]
            if isinstance(value, ast.Constant) and isinstance(value.value, (bool, int, float)):
                return line
    return 0


def _flags(node: ast.AST) -> Iterator[set[str]]:
    """The names of both flags, where a statement unpacks what ``step`` returns."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
        return
    names = list(targets(node))
    if last_name(node.value.func) == "step" and len(names) == 5 and all(names[2:4]):
        yield set(names[2:4])


def kept_choice_line(source: Source) -> int:
    """Where a name is given its own old value on a condition; 0 if there is none."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.IfExp):
            branches = {last_name(node.value.body), last_name(node.value.orelse)}
            if branches & set(targets(node)) - {""}:
                return node.lineno
    return 0


def _near(source: Source, holds: Callable[[ast.AST], bool], loss: int) -> int:
    """The closest line up to the loss where ``holds``, in its function or else anywhere."""
    lines = [line for line, node in _headers(source.tree) if holds(node)]
    before = [line for line in lines if line <= loss]
    return max(before) if before else min(lines, default=0)


def _headers(tree: ast.AST) -> Iterator[tuple[int, ast.AST]]:
    """Line and content of every plain statement, and what every loop goes over."""
    for node in ast.walk(tree):
        if isinstance(node, ast.For):
            yield node.lineno, node.iter
        elif isinstance(node, ast.stmt) and not hasattr(node, "body"):
            yield node.lineno, node


def _shortens(node: ast.AST) -> bool:
    """Whether a slice within it starts at 1 or stops at -1."""
    slices = (part for part in ast.walk(node) if isinstance(part, ast.Slice) and not part.step)
    return any(_is(part.lower, 1) or _is(part.upper, -1) for part in slices)


def _is(node: ast.expr | None, number: int) -> bool:
    if node is None:
        return False
    try:
        return bool(ast.literal_eval(node) == number)
    except ValueError:
        return False


_WRITTEN: dict[str, Callable[[Source], int]] = {
    "bootstrapped-after-termination": _constant_flag_line,
    "truncation-as-termination": _merged_flags_line,
}
