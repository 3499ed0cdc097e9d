"""Follows the names of a program's text: from where something is used to where it was made."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from eligibility.audit.judgement.source import Source, mentioned_names

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_STEPS = ("step", "step_async")
_GROWS = ("append", "extend", "insert", "appendleft")
_CHOOSES = ("argmax", "max", "topk", "index", "multinomial", "sample")
_LIMITS = ("clip", "clamp")
_HOPS = 3  # calls that are followed into


def action_line(source: Source) -> int:
    """Where the action that an environment's ``step`` is given was made; 0 if that is not plain."""
    stepping = [call for call in calls(source.tree) if _called(call) in _STEPS and call.args]
    found = (_made(source.tree, source.tree, call.args[0], call.lineno, _HOPS) for call in stepping)
    return next((line for line in found if line), 0)


def scored_line(source: Source, loss: int) -> int:
    """Where the log-probabilities of a loss are collected, or else made; 0 if it names none."""
    statement = statement_at(source.tree, loss)
    names = {n for n in mentioned_names(statement) if "log" in n} if statement else set()
    for name in sorted(names):
        made = [pair for pair in assignments(source.tree, name) if pair[0] < loss]
        parts = {part for _, value in made for part in mentioned_names(value) if "log" in part}
        grown = [line for part in (name, *sorted(parts)) for line in _grown(source, part)]
        if grown or made:
            return grown[0] if grown else made[-1][0]
    return 0


def _grown(source: Source, name: str) -> list[int]:
    """Where something is put into a list."""
    return [
        call.lineno
        for call in calls(source.tree)
        if _called(call) in _GROWS
        and isinstance(call.func, ast.Attribute)
        and last_name(call.func.value) == name
    ]


def element_line(source: Source, line: int) -> int:
    """Where, at or after a line, one element of what it assigns is taken by its number; or 0."""
    statement = statement_at(source.tree, line)
    names = set(targets(statement)) if statement else set()
    taken = [
        node.lineno
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Subscript)
        and last_name(node.value) in names
        and isinstance(node.ctx, ast.Load)
        and _is_number(node.slice)
        and node.lineno > line
    ]
    return min(taken, default=0)


def update_call(source: Source, backward: int) -> int:
    """Where the loop over an environment's steps calls what holds ``backward``; 0 if it does not.

    ``backward`` itself where the loop holds it.
    """
    loops = [
        node
        for node in ast.walk(source.tree)
        if isinstance(node, (ast.For, ast.While)) and steps_within(node)
    ]
    innermost = [loop for loop in loops if not any(other in ast.walk(loop) for other in loops
                                                   if other is not loop)]  # fmt: skip
    name = next((f.name for f in reversed(functions_around(source.tree, backward))), "")
    for loop in innermost:
        if loop.lineno <= backward <= (loop.end_lineno or 0):
            return backward
        updates = [call.lineno for call in calls(loop) if name and _called(call) == name]
        if updates:
            return updates[0]
    return 0


def subtracted_line(source: Source, line: int) -> int:
    """Where what a line subtracts was last assigned before it; 0 if that is not plain."""
    statement = statement_at(source.tree, line)
    for node in ast.walk(statement) if statement else ():
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
            made = [at for at, _ in assignments(source.tree, last_name(node.right)) if at < line]
            if made:
                return made[-1]
    return 0


def _made(tree: ast.AST, scope: ast.AST, value: ast.expr, line: int, hops: int) -> int:
    """Where in ``scope`` the first name of an expression was assigned, or in what it calls."""
    for name in _names(value):
        made = [(at, node) for at, node in assignments(scope, name) if at <= line]
        if not made:
            continue
        at, source = made[-1]
        if isinstance(source, ast.Call) and _called(source) in _LIMITS and source.args:
            return _made(tree, scope, source.args[0], at - 1, hops) or at
        function = called_function(tree, source)
        if function is None or not hops:
            return at
        returns = [n for n in ast.walk(function) if isinstance(n, ast.Return) and n.value]
        for node in returns:
            assert node.value is not None
            first = node.value.elts[0] if isinstance(node.value, ast.Tuple) else node.value
            if {_called(call) for call in calls(first)} & set(_CHOOSES):
                return node.lineno
            return _made(tree, function, first, node.lineno, hops - 1) or node.lineno
        return at
    return 0


def called_function(tree: ast.AST, value: ast.expr) -> _Function | None:
    """The function of the program that an expression is a call of."""
    if not isinstance(value, ast.Call):
        return None
    named = (n for n in ast.walk(tree) if isinstance(n, _Function) and n.name == _called(value))
    return next(named, None)


def functions_around(tree: ast.AST, line: int) -> list[_Function]:
    """The functions that hold a line, the innermost one last."""
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, _Function) and node.lineno <= line <= (node.end_lineno or 0)
    ]


def assignments(scope: ast.AST, name: str) -> list[tuple[int, ast.expr]]:
    """Line and value of every assignment to a name, in the order of the text."""
    found = [
        (node.lineno, node.value)
        for node in ast.walk(scope)
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign))
        and node.value is not None
        and name in targets(node)
    ]
    return sorted(found, key=lambda pair: pair[0])


def targets(statement: ast.stmt) -> Iterator[str]:
    """The names that a statement assigns to, also within tuples."""
    if isinstance(statement, ast.Assign):
        for target in statement.targets:
            parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
            yield from map(last_name, parts)
    elif isinstance(statement, (ast.AnnAssign, ast.AugAssign)):
        yield last_name(statement.target)


def statement_at(tree: ast.AST, line: int) -> ast.stmt | None:
    """The innermost plain statement that holds a line."""
    holding = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt)
        and not hasattr(node, "body")
        and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    return holding[-1] if holding else None


def steps_within(node: ast.AST) -> bool:
    """Whether an environment takes a step within a part of the program."""
    return any(_called(call) in _STEPS and call.args for call in calls(node))


def calls(node: ast.AST) -> Iterator[ast.Call]:
    """Every call within a part of the program."""
    return (part for part in ast.walk(node) if isinstance(part, ast.Call))


def _called(call: ast.Call) -> str:
    return last_name(call.func)


def _names(value: ast.expr) -> Iterator[str]:
    """The names that an expression reads, without those that it calls."""
    called = {id(call.func) for call in calls(value) if isinstance(call.func, ast.Name)}
    for node in ast.walk(value):
        if isinstance(node, ast.Name) and id(node) not in called:
            yield node.id


def _is_number(index: ast.expr) -> bool:
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    return any(isinstance(part, ast.Constant) and type(part.value) is int for part in parts)


def last_name(node: ast.expr) -> str:
    """The name at the end of ``a.b.name``; of ``name[…]`` the name."""
    if isinstance(node, ast.Subscript):
        return last_name(node.value)
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
