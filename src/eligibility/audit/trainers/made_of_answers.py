"""Which names of a program's text are assigned something that is made of sampled answers."""

from __future__ import annotations

import ast
from collections.abc import Iterator

# Methods and functions whose results are tokens or text that the model has given.
_SAMPLING = frozenset(("generate", "multinomial", "sample", "decode", "batch_decode"))


def made_of_answers(tree: ast.Module) -> list[ast.Assign]:
    """The assignments to one name whose value depends on an answer, by the text alone.

    Names count in the whole module: one in a function is the same as one outside of it.
    """
    flows = [flow for node in ast.walk(tree) for flow in _flows(node)]
    names: set[str] = set()
    while True:
        more = {name for into, value in flows if _depends(value, names) for name in into}
        if more <= names:
            break
        names |= more
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and len(node.targets) == 1
        and _depends(node.value, names)
    ]


def _flows(node: ast.AST) -> Iterator[tuple[set[str], ast.expr]]:
    """Names, and an expression that they get something of."""
    match node:
        case ast.Assign(targets=targets, value=value):
            yield {name for target in targets for name in _names(target)}, value
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            yield _names(target), value
        case ast.AugAssign(target=target, value=value) | ast.NamedExpr(target=target, value=value):
            yield _names(target), value
        case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
            yield _names(target), value
        case ast.Call(func=ast.Attribute(value=owner, attr="append" | "extend"), args=[value]):
            yield _names(owner), value


def _names(node: ast.expr) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _depends(value: ast.expr, names: set[str]) -> bool:
    for node in ast.walk(value):
        if isinstance(node, ast.Name) and node.id in names:
            return True
        if isinstance(node, ast.Call) and _last_name(node.func) in _SAMPLING:
            return True
    return False


def _last_name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""
