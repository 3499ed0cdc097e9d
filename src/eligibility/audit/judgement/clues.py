"""Statements by which a fault is known in a program's text, whatever its names are."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from eligibility.audit.judgement.pointers import (
    assignments,
    calls,
    functions_around,
    last_name,
    statement_at,
    steps_within,
    targets,
)
from eligibility.audit.judgement.source import (
    Source,
    assigned_names,
    is_accumulation,
    mentioned_names,
)

_REVERSES = ("reversed", "reverse", "flip", "flipud")


def product_line(source: Source, loss: int) -> int:
    """The loss's line if it multiplies, or else where what it reads was multiplied."""
    line = loss
    for _ in range(4):
        statement = statement_at(source.tree, line)
        if statement is None or multiplies(statement):
            return line if statement else loss
        made = [
            (at, any("log" in name for name in (name, *_mentioned(value))))
            for name in mentioned_names(statement) - assigned_names(statement)
            for at, value in assignments(_scope(source, line), name)
            if at < line
        ]
        if not made:
            return loss
        line = max(made, key=lambda one: (one[1], one[0]))[0]
    return loss


def shortened_line(source: Source, loss: int) -> int:
    """Where a sequence loses its first or its last element, close to the loss; or 0."""
    return _near(source, _shortens, loss)


def rolled_line(source: Source, loss: int) -> int:
    """Where a sequence is moved by one step, close to the loss; or 0."""

    def moves(node: ast.AST) -> bool:
        if any(last_name(call.func) == "roll" for call in calls(node)):
            return True
        names = _mentioned(node)
        return _shortens(node) and not any("log" in name or "obs" in name for name in names)

    return _near(source, moves, loss)


def reversing_line(source: Source, stored: int, loss: int) -> int:
    """Where something is reversed that a line has put in order already, or else that line.

    Where no line stores: the closest line to the loss that reverses; 0 if there is none.
    """
    if not stored:
        return _near(source, _reverses, loss)
    statement = statement_at(source.tree, stored)
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return stored
    if call.func.attr not in ("insert", "appendleft"):
        return stored
    name = last_name(call.func.value)
    lines = [
        line
        for line, node in _headers(source.tree)
        if line > stored and name in _mentioned(node) and _reverses(node)
    ]
    return min(lines, default=stored)


def forward_sum_line(source: Source, loss: int) -> int:
    """The loop that makes and stores a sum over the steps so far, close to the loss; or 0."""
    lines = [
        loop.lineno
        for loop in ast.walk(source.tree)
        if isinstance(loop, ast.For)
        and not _reverses(loop.iter)
        and not steps_within(loop)
        and any(_sums(node, other) for node in loop.body for other in loop.body)
    ]
    before = [line for line in lines if line <= loss]
    return max(before) if before else min(lines, default=0)


def _sums(adding: ast.stmt, storing: ast.stmt) -> bool:
    """Whether a statement adds to a number, and another one stores it into a list."""
    names = assigned_names(adding) - {""}
    if adding is storing or not _grows(storing) or not names & mentioned_names(storing):
        return False
    return is_accumulation(adding) or bool(mentioned_names(adding) & _held(storing))


def _held(storing: ast.stmt) -> set[str]:
    """The list that a statement such as ``returns.append(…)`` stores into."""
    value = storing.value if isinstance(storing, ast.Expr) else None
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        return {last_name(value.func.value)} - {""}
    return set(targets(storing)) - {""}


def starts_anew(source: Source, adding: int) -> bool:
    """Whether the loop of a sum also gives it a constant: it may forget what it had."""
    statement = statement_at(source.tree, adding)
    names = assigned_names(statement) if statement else set()
    return any(
        isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Constant)
        and names & set(targets(node))
        for loop in ast.walk(source.tree)
        if isinstance(loop, ast.For) and any(part is statement for part in loop.body)
        for node in ast.walk(loop)
    )


def divided_line(source: Source, loss: int) -> int:
    """Where something is divided by a standard deviation, close to the loss; or 0."""

    def divides(node: ast.AST) -> bool:
        quotients = (n for n in ast.walk(node) if isinstance(n, ast.BinOp))
        return any(
            isinstance(n.op, ast.Div) and any(last_name(c.func) == "std" for c in calls(n.right))
            for n in quotients
        )

    return _near(source, divides, loss)


def next_value_line(source: Source, loss: int) -> int:
    """Where the value of the next state is multiplied by a discount; or 0."""

    def discounts(node: ast.AST) -> bool:
        names = {name.lower() for name in _mentioned(node)}
        return multiplies(node) and any("next" in name and "val" in name for name in names)

    return _near(source, discounts, loss)


def ungraded_line(source: Source, loss: int) -> int:
    """The ``with torch.no_grad()`` in the function that holds the loss; 0 if there is none."""
    for function in functions_around(source.tree, loss)[-1:]:
        for node in ast.walk(function):
            if isinstance(node, ast.With) and any(
                "no_grad" in _mentioned(item.context_expr) for item in node.items
            ):
                return node.lineno
    return 0


def kept_choice_line(source: Source) -> int:
    """Where a name is given its own old value on a condition; 0 if there is none."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.IfExp):
            branches = {last_name(node.value.body), last_name(node.value.orelse)}
            if branches & set(targets(node)) - {""}:
                return node.lineno
    return 0


def repeated_call_line(source: Source, backward: int) -> int:
    """Where a loop calls the function that holds ``backward`` with the same data; or 0.

    0 as well where that function has a loop of its own around it, or the called one acts.
    """
    for function in functions_around(source.tree, backward)[-1:]:
        loops = [n for n in ast.walk(function) if isinstance(n, (ast.For, ast.While))]
        if any(loop.lineno <= backward <= (loop.end_lineno or 0) for loop in loops):
            return 0
        for loop in ast.walk(source.tree):
            if not isinstance(loop, ast.For) or len(loop.body) != 1:
                continue
            called = [c.lineno for c in calls(loop) if last_name(c.func) == function.name]
            if called:
                return called[0]
    return 0


def passes_on(source: Source, line: int) -> bool:
    """Whether a line only takes along what it reads: it stores a step, or unpacks."""
    statement = statement_at(source.tree, line)
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Tuple):
        return not any(isinstance(part, ast.BinOp) for part in ast.walk(statement))
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or last_name(call.func) not in ("append", "push", "add"):
        return False
    loops = (node for node in ast.walk(source.tree) if isinstance(node, (ast.For, ast.While)))
    return any(
        loop.lineno <= line <= (loop.end_lineno or 0) and steps_within(loop) for loop in loops
    )


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
    """Whether two things are multiplied that are no numbers."""
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


def _reverses(node: ast.AST) -> bool:
    if any(last_name(call.func) in _REVERSES for call in calls(node)):
        return True
    slices = (part for part in ast.walk(node) if isinstance(part, ast.Slice))
    return any(_is(part.step, -1) for part in slices)


def _grows(statement: ast.stmt) -> bool:
    """``x.append(…)`` and ``x[t] = …``."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        return last_name(statement.value.func) in ("append", "insert")
    return isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Subscript)


def _mentioned(node: ast.AST) -> set[str]:
    return {last_name(n) for n in ast.walk(node) if isinstance(n, (ast.Name, ast.Attribute))}


def _scope(source: Source, line: int) -> ast.AST:
    """The innermost function that holds a line, or the program."""
    around = functions_around(source.tree, line)
    return around[-1] if around else source.tree
