"""What the program's text says: its constants, its interface, and where its statements are."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from eligibility.errors import InvalidValueError

USUAL_DISCOUNTS = (0.99, 0.9, 0.95)


@dataclass(frozen=True)
class Source:
    """A program's text.

    Attributes:
        path: The file.
        tree: Its syntax tree.
        lines: Its lines.
    """

    path: Path
    tree: ast.Module
    lines: tuple[str, ...]

    @property
    def four_tuple(self) -> bool:
        """Whether it unpacks ``step`` as gym before 0.26 returned it."""
        widths = [
            len(node.targets[0].elts)
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Tuple)
            and isinstance(node.value, ast.Call)
            and _name(node.value.func) == "step"
        ]
        return bool(widths) and max(set(widths), key=widths.count) == 4

    def discounts(self, arguments: Sequence[str]) -> tuple[float, ...]:
        """Discounts that the program may mean: the constants in [0.5, 1), and 1."""
        found = [value for value in self._constants(arguments) if 0.5 <= value < 1.0]
        return (*dict.fromkeys(found or USUAL_DISCOUNTS), 1.0)

    def epsilons(self) -> tuple[float, ...]:
        """Small constants that it may add to a divisor, and 0."""
        return (0.0, *dict.fromkeys(v for v in self._constants(()) if 0.0 < v <= 1e-3))

    def _constants(self, arguments: Sequence[str]) -> Iterator[float]:
        for argument in arguments:
            try:
                yield float(argument.rpartition("=")[2])
            except ValueError:
                continue
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, float):
                yield node.value

    def line_where(self, holds: Callable[[ast.stmt], bool], near: int = 0) -> int:
        """Line of the statement that ``holds``, the closest one up to ``near``; 0 if none."""
        lines = [
            node.lineno
            for node in ast.walk(self.tree)
            if isinstance(node, ast.stmt) and _is_plain(node) and holds(node)
        ]
        before = [line for line in lines if line <= near or not near]
        return max(before) if before else min(lines, default=0)

    def loss_line(self, backward: int) -> int:
        """Where the tensor whose ``backward`` is called at a line was last assigned."""
        name = ""
        for node in ast.walk(self.tree):
            if (
                isinstance(node, ast.Call)
                and node.lineno == backward
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "backward"
            ):
                name = _name(node.func.value)
        if not name:
            return backward
        return self.line_where(lambda s: name in assigned_names(s), near=backward) or backward


def read_source(path: Path) -> Source:
    """The text of ``path``; raises ``InvalidValueError`` if it is no Python program."""
    try:
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text, filename=str(path))
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        raise InvalidValueError(
            f"`{path}`",
            f"text that is not Python{f' (line {line})' if line else ''}",
            "a Python program",
            "pass the script that trains the policy",
        ) from error
    except OSError as error:
        raise InvalidValueError(
            f"`{path}`",
            error.strerror or "an unreadable file",
            "a readable Python file",
            "check the path",
        ) from error
    return Source(path.absolute(), tree, tuple(text.splitlines()))


def assigned_names(statement: ast.stmt) -> set[str]:
    """Names that a statement assigns to, also by ``+=`` and by ``append``."""
    if isinstance(statement, ast.Assign):
        return {_name(target) for target in statement.targets}
    if isinstance(statement, (ast.AugAssign, ast.AnnAssign)):
        return {_name(statement.target)}
    return set()


def called_names(statement: ast.stmt) -> set[str]:
    """The last part of the name of everything that a statement calls."""
    return {_name(node.func) for node in ast.walk(statement) if isinstance(node, ast.Call)}


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _is_plain(node: ast.stmt) -> bool:
    """A statement without a body of its own."""
    return not hasattr(node, "body")
