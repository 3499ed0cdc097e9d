"""Where a program builds the loss whose gradient it takes, in whichever function that is."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from eligibility.audit.judgement.pointers import (
    assignments,
    called_function,
    calls,
    last_name,
    targets,
)
from eligibility.audit.judgement.source import Source, mentioned_names

_HOPS = 4  # functions that are followed into
_DIFFERENTIATES = ("grad", "grad_and_value", "value_and_grad")
_REDUCES = ("mean", "sum", "squeeze", "neg")


@dataclass(frozen=True)
class Loss:
    """Where a gradient is taken, and of what.

    Attributes:
        taken: Line that takes the gradient or gives it to the optimizer; 0 if there is none.
        built: Line that builds the loss.
        signed: Line that decides on the gradient's sign.
        by_hand: Whether the gradient is written out, and nothing differentiates.
    """

    taken: int
    built: int
    signed: int
    by_hand: bool = False


def find_loss(source: Source, backward: int) -> Loss:
    """The loss whose ``backward`` is called at a line; 0: whatever gradient the program takes."""
    if backward:
        built = _built(source, _differentiated(source, backward), backward)
        return Loss(backward, built, built)
    given = [
        (node.lineno, node.value)
        for node in ast.walk(source.tree)
        if isinstance(node, (ast.Assign, ast.AugAssign))
        and "grad" in _attributes(node)
        and not isinstance(node.value, ast.Constant)
    ]
    line = given[0][0] if given else 0
    for call in calls(source.tree):
        if last_name(call.func) in _DIFFERENTIATES and call.args:
            built = _built(source, call.args[0], call.lineno)
            negated = bool(given) and any(isinstance(n, ast.USub) for n in ast.walk(given[0][1]))
            return Loss(line or call.lineno, built, line if negated else built)
    if given:
        return Loss(line, _by_hand(source, given[0][1], line), line, by_hand=True)
    unseen = [call.lineno for call in calls(source.tree) if last_name(call.func) == "backward"]
    if unseen:  # it failed, or never ran
        return find_loss(source, max(unseen))
    steps = [
        call.lineno
        for call in calls(source.tree)
        if isinstance(call.func, ast.Attribute)
        and call.func.attr == "step"
        and "opt" in last_name(call.func.value).lower()
    ]
    line = min(steps, default=0)
    return Loss(line, line, line)


def _differentiated(source: Source, backward: int) -> ast.expr | None:
    """What ``backward`` is called on at a line."""
    on_line = [
        call.func.value
        for call in calls(source.tree)
        if call.lineno == backward
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "backward"
    ]
    return on_line[0] if on_line else None


def _built(source: Source, value: ast.expr | None, line: int) -> int:
    if value is None:
        return line
    function = _named_function(source, value)
    if function is not None:
        return _returned(source, function, "", 0, _HOPS) or line
    return _origin(source, source.tree, value, line, _HOPS)


def _named_function(source: Source, value: ast.expr) -> ast.FunctionDef | None:
    """The function that an expression names: ``torch.func.grad`` takes one."""
    name = value.id if isinstance(value, ast.Name) else ""
    functions = (n for n in ast.walk(source.tree) if isinstance(n, ast.FunctionDef))
    return next((function for function in functions if function.name == name), None)


def _origin(source: Source, scope: ast.AST, value: ast.expr, line: int, hops: int) -> int:
    """Where the names of an expression were last assigned before its line, or in what they call.

    Of several, the one whose assignment mentions a log-probability.
    """
    inner = [node for node in ast.walk(value) if isinstance(node, (ast.Name, ast.Attribute))]
    names = {last_name(node) for node in inner}
    made = [
        (at, assigned, name)
        for name in sorted(names)
        for at, assigned in assignments(scope, name)
        if at <= line and assigned is not value
    ]
    scoring = [one for one in made if any("log" in n for n in mentioned_names(one[1]) | {one[2]})]
    if not made:
        return line
    at, assigned, name = max(scoring or made, key=lambda one: one[0])
    summed = _policy_part(assigned)
    if summed and hops and any(line < at for line, _ in assignments(scope, summed.id)):
        return _origin(source, scope, summed, at, hops - 1)
    call = _result(source, assigned)
    if call is None or not hops:
        return at
    function = called_function(source.tree, call)
    assert function is not None
    place = _position(scope, at, name)
    return _returned(source, function, _key(value), place, hops - 1) or at


def _by_hand(source: Source, value: ast.expr, line: int) -> int:
    """Where a gradient is made that no ``backward`` makes: the first line that tells of scores."""
    for _ in range(_HOPS):
        made = [
            (at, assigned)
            for name in sorted(mentioned_names(value))
            for at, assigned in assignments(source.tree, name)
            if at < line
        ]
        if _scores(value) or not made:
            break
        scoring = [one for one in made if _scores(one[1])]
        line, value = max(scoring or made, key=lambda one: one[0])
    return line


def _returned(source: Source, function: ast.AST, key: str, position: int, hops: int) -> int:
    """Where a function builds what it returns, under a key or at a position of a tuple."""
    returns = [n for n in ast.walk(function) if isinstance(n, ast.Return) and n.value]
    for node in reversed(returns):
        value = node.value
        assert value is not None
        if isinstance(value, ast.Dict):
            value = _entry(value, key)
        elif isinstance(value, ast.Tuple):
            value = value.elts[min(position, len(value.elts) - 1)]
        call = _result(source, value)
        if call is not None and hops:
            inner = called_function(source.tree, call)
            assert inner is not None
            return _returned(source, inner, "", 0, hops - 1) or node.lineno
        if _scores(value):
            return node.lineno
        return _origin(source, function, value, node.lineno, hops)
    return 0


def _policy_part(value: ast.expr) -> ast.Name | None:
    """The name of a policy's loss in a sum of losses."""
    while isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Add, ast.Sub)):
        value = value.left
    words = ("pg", "policy", "actor", "pi_", "surr")
    named = isinstance(value, ast.Name) and any(word in value.id.lower() for word in words)
    return value if named and isinstance(value, ast.Name) else None


def _scores(value: ast.expr) -> bool:
    """Whether an expression mentions a log-probability, or computes one from actions."""
    words = ("log", "cross_entropy", "nll", "prob")
    return any(word in name for name in mentioned_names(value) for word in words)


def _entry(value: ast.Dict, key: str) -> ast.expr:
    """What a dictionary holds under a key, or else under one that tells of a loss."""
    entries = {
        str(name.value): held
        for name, held in zip(value.keys, value.values, strict=True)
        if isinstance(name, ast.Constant)
    }
    losses = [held for name, held in entries.items() if "loss" in name]
    return entries.get(key) or next(iter(losses), value.values[0] if value.values else value)


def _key(value: ast.expr) -> str:
    """The text in ``name["text"]``."""
    for node in ast.walk(value):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            return str(node.slice.value)
    return ""


def _position(scope: ast.AST, line: int, name: str) -> int:
    """Which of the names that a line assigns one is."""
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign) and node.lineno == line:
            names = list(targets(node))
            return names.index(name) if name in names else 0
    return 0


def _result(source: Source, value: ast.expr) -> ast.Call | None:
    """The call of a function of the program whose result is an expression, up to a factor."""
    while True:
        if isinstance(value, ast.Call):
            if called_function(source.tree, value) is not None:
                return value
            if not isinstance(value.func, ast.Attribute) or value.func.attr not in _REDUCES:
                return None
            value = value.func.value
        elif isinstance(value, ast.UnaryOp):
            value = value.operand
        elif isinstance(value, (ast.Subscript, ast.Attribute)):
            value = value.value
        elif isinstance(value, ast.BinOp) and isinstance(value.op, ast.Div):
            value = value.left
        elif isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult):
            number = isinstance(value.left, ast.Constant)
            if not number and not isinstance(value.right, ast.Constant):
                return None
            value = value.right if number else value.left
        elif isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Add, ast.Sub)):
            left = _result(source, value.left)
            return left if left or _scores(value.left) else _result(source, value.right)
        else:
            return None


def _attributes(statement: ast.Assign | ast.AugAssign) -> set[str]:
    """Attributes that a statement assigns to."""
    to = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    return {target.attr for target in to if isinstance(target, ast.Attribute)}
