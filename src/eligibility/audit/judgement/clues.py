"""Statements by which a fault is known in a program's text, whatever its names are."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from eligibility.audit.judgement.pointers import (
    last_name,
    targets,
)
from eligibility.audit.judgement.source import (
    Source,
)

_REVERSES = ("reversed", "reverse", "flip", "flipud")


def shortened_line(source: Source, loss: int) -> int:
    """Where a sequence loses its first or its last element, close to the loss; or 0."""
    return _near(source, _shortens, loss)


def next_value_line(source: Source, loss: int) -> int:
    """Where the value of the next state is multiplied by a discount; or 0."""

    def discounts(node: ast.AST) -> bool:
        names = {name.lower() for name in _mentioned(node)}
        return multiplies(node) and any("next" in name and "val" in name for name in names)

    return _near(source, discounts, loss)


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


def multiplies(node: ast.AST) -> bool:
    """Whether two things that are not numbers are multiplied."""
    return any(
        isinstance(part, (ast.AugAssign, ast.BinOp))
        and isinstance(part.op, ast.Mult)
        and not any(isinstance(factor, ast.Constant) for factor in _factors(part))
        for part in ast.walk(node)
    )


def _factors(product: ast.AugAssign | ast.BinOp) -> tuple[ast.expr, ast.expr]:
    """Both sides of an operation."""
    if isinstance(product, ast.AugAssign):
        return product.target, product.value
    return product.left, product.right


def _mentioned(node: ast.AST) -> set[str]:
    return {last_name(n) for n in ast.walk(node) if isinstance(n, (ast.Name, ast.Attribute))}
