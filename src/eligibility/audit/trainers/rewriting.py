"""The user's modules as they run in the audit: their functions are watched, their loops can end."""

from __future__ import annotations

import ast
import builtins
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from eligibility.audit.job import WholeNumber
from eligibility.audit.judgement.source import name_of
from eligibility.audit.patches import Patches
from eligibility.audit.rewritten import rewrite

WATCHED, STEPS = "_eligibility_watched", "_eligibility_steps"
ASSIGNED = "_eligibility_assigned"
BEGINS, GOES_ON = "_eligibility_begins", "_eligibility_goes_on"
SMALL = 2
# Methods and functions whose results are tokens or text that the model has given.
_SAMPLING = frozenset(("generate", "multinomial", "sample", "decode", "batch_decode"))


class Rewriting:
    """Reads the user's modules, whichever are loaded from now on.

    Args:
        watched: Takes each function and returns what is called instead.
        assigned: Takes what is made of answers and assigned to a name, the name, and its file and
            line; returns what is assigned instead.
        over: Asked by each loop before it goes on, with the number of draws when it was asked last
            or None: whether the answers that are drawn within it are complete.
    """

    def __init__(
        self,
        watched: Callable[[Any], Any],
        assigned: Callable[[Any, str, str, int], Any],
        over: Callable[[int | None], tuple[bool, int]],
    ) -> None:
        self._over = over
        self.constants: list[WholeNumber] = []
        self.strings: set[str] = set()
        self.variables: list[str] = []  # of the environment, that were not set
        self._last: dict[str, int | None] = {}
        names = {WATCHED: watched, ASSIGNED: assigned, STEPS: self._steps}
        names |= {BEGINS: self._begins, GOES_ON: self._goes_on}
        vars(builtins).update(names)
        rewrite(Patches(), self.changed)

    def changed(self, tree: ast.Module, file: str) -> ast.Module:
        """The tree of a module as it runs."""
        assigned = made_of_answers(tree)
        for node in ast.walk(tree):
            self._read_constant(node, file)
            self._stand_for_variable(node)
            _watch(node)
            _let_for_end(node)
            for name in ("body", "orelse", "finalbody"):
                statements = getattr(node, name, None)
                if isinstance(statements, list):
                    setattr(node, name, [each for s in statements for each in _let_while_end(s)])
        for statement in assigned:
            _let_assign(statement, file)
        return tree

    def _read_constant(self, node: ast.AST, file: str) -> None:
        """Note a string or a whole number."""
        if not isinstance(node, ast.Constant):
            return
        if isinstance(node.value, str):
            self.strings.add(node.value)
        if type(node.value) is int and node.value >= SMALL:
            name = os.path.basename(file)
            self.constants.append((name, node.lineno, node.col_offset, node.value))

    def _stand_for_variable(self, node: ast.AST) -> None:
        """An environment variable that the program cannot do without has some value."""
        match node:
            case ast.Subscript(
                ast.Attribute(attr="environ"), ast.Constant(str(name)), ast.Load()
            ) if name not in os.environ:
                os.environ[name] = "1" if name == "WORLD_SIZE" else "0"
                self.variables.append(name)

    def _steps(self, items: Iterable[Any]) -> Iterator[Any]:
        draws = None
        for item in items:
            over, draws = self._over(draws)
            if over:
                return
            yield item

    def _begins(self, loop: str) -> None:
        self._last[loop] = None

    def _goes_on(self, loop: str) -> bool:
        over, self._last[loop] = self._over(self._last.get(loop))
        return not over


def _watch(node: ast.AST) -> None:
    if isinstance(node, ast.FunctionDef):
        node.decorator_list.append(ast.copy_location(ast.Name(WATCHED, ast.Load()), node))


def _call(name: str, given: list[ast.expr], at: ast.AST) -> ast.expr:
    return ast.copy_location(ast.Call(ast.Name(name, ast.Load()), given, []), at)


def _let_assign(node: ast.Assign | ast.AugAssign | ast.Call, file: str) -> None:
    match node:
        case ast.Assign(targets=[target], value=value) | ast.AugAssign(target=target, value=value):
            pass
        case ast.Call(func=ast.Attribute(value=target), args=[value]):
            pass
    about = [ast.Constant(said) for said in (ast.unparse(target), file, node.lineno)]
    called = _call(ASSIGNED, [value, *about], value)
    if isinstance(node, ast.Call):
        node.args = [called]
    else:
        node.value = called


def _let_for_end(node: ast.AST) -> None:
    if isinstance(node, ast.For):
        node.iter = _call(STEPS, [node.iter], node.iter)


def _let_while_end(node: ast.AST) -> list[ast.AST]:
    if not isinstance(node, ast.While):
        return [node]
    loop: list[ast.expr] = [ast.Constant(str(id(node)))]
    both = [_call(GOES_ON, loop, node), node.test]
    node.test = ast.copy_location(ast.BoolOp(ast.And(), both), node.test)
    return [ast.copy_location(ast.Expr(_call(BEGINS, loop, node)), node), node]


def made_of_answers(tree: ast.Module) -> list[ast.Assign | ast.AugAssign | ast.Call]:
    """The assignments whose value depends on an answer, by the text alone; or what is appended.

    Names count in the whole module: one in a function is the same as one outside of it.
    """
    flows = [flow for node in ast.walk(tree) for flow in _flows(node)]
    names: set[str] = set()
    while True:
        more = {name for into, value in flows if _depends(value, names) for name in into}
        if more <= names:
            break
        names |= more
    found: list[ast.Assign | ast.AugAssign | ast.Call] = []
    for node in ast.walk(tree):
        match node:
            case (
                ast.Assign(targets=[ast.Name() | ast.Attribute() | ast.Subscript()], value=value)
                | ast.AugAssign(target=ast.Subscript(), value=value)
                | ast.Call(func=ast.Attribute(attr="append"), args=[value], keywords=[])
            ) if _depends(value, names):
                found.append(node)
    return found


def _flows(node: ast.AST) -> Iterator[tuple[set[str], ast.expr]]:
    """Names, and the expression that they are made of."""
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


def _depends(value: ast.AST, names: set[str]) -> bool:
    """Whether a value has one of the names in it, or something that a model has sampled."""
    for node in ast.walk(value):
        if isinstance(node, ast.Name) and node.id in names:
            return True
        if isinstance(node, ast.Call) and name_of(node.func) in _SAMPLING:
            return True
    return False
