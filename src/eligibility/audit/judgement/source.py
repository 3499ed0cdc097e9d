"""What the program's text says: its constants, its interface, and where its statements are."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.util import decode_source
from itertools import product
from pathlib import Path

from eligibility.audit.job import WholeNumber
from eligibility.audit.judgement.constants import TEXT, Constants
from eligibility.errors import InvalidValueError
from eligibility.notebooks import is_notebook, parse_program, script_of
from eligibility.sandbox.workspace import repository_root

_MODULES = 60  # of a project that are read
_SHARES = 12  # numbers of its text that are tried as γ and λ, its own before those of its modules
_LIKELY = 0.9  # as γ: without such a number in the text, the usual ones may be in a file it reads


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
        """Whether it unpacks ``step`` as gym before 0.26 returned it, and never as it does now.

        Five values can only come from an environment; four may come from the program's own wrapper.
        """
        widths = {
            len(node.targets[0].elts)
            for _, tree in self._project
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Tuple)
            and not any(isinstance(target, ast.Starred) for target in node.targets[0].elts)
            and isinstance(node.value, ast.Call)
            and name_of(node.value.func) == "step"
        }
        return 4 in widths and 5 not in widths

    def whole_numbers(self) -> list[WholeNumber]:
        """The whole numbers in the text of its project."""
        return [
            (path.name, node.lineno, node.col_offset, node.value)
            for path, tree in self._project
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and type(node.value) is int
        ]

    def strings(self) -> list[str]:
        """The strings in the text of its project."""
        return [
            node.value
            for _, tree in self._project
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]

    @cached_property
    def _project(self) -> tuple[tuple[Path, ast.Module], ...]:
        """It and the modules of its project that it imports, and those that they import."""
        own = self.path.resolve()
        root = repository_root(own.parent) or own.parent.parent
        folders = (own.parent, root, root / "src")
        found, seen = [(own, self.tree)], {own}
        for path, tree in found:  # which grows on the way
            for name, folder in product(_imported(tree), (path.parent, *folders)):
                stem = folder.joinpath(*name.split("."))
                for file in (stem.with_suffix(".py"), stem / "__init__.py"):
                    if file not in seen and len(seen) < _MODULES:
                        with suppress(OSError, SyntaxError, ValueError):
                            found.append((file, ast.parse(file.read_text(encoding="utf-8"))))
                            seen.add(file)
        return tuple(found)

    def constants(self, arguments: Sequence[str]) -> Constants:
        """Numbers on the command line and in the text of its project that may be γ or λ."""
        found = dict.fromkeys(self._constants(arguments))
        shares = [value for value in found if 0.5 <= value < 1.0][:_SHARES]
        usual, told = Constants(), any(value >= _LIKELY for value in shares)
        return Constants(
            discounts=tuple(dict.fromkeys((*shares, *((1.0,) if told else usual.discounts)))),
            decays=tuple(dict.fromkeys((0.0, 1.0, *shares, *usual.decays))),
            origin=TEXT if told else usual.origin,
        )

    def _constants(self, arguments: Sequence[str]) -> Iterator[float]:
        for argument in arguments:
            try:
                yield float(argument.rpartition("=")[2])
            except ValueError:
                continue
        for _, tree in self._project:
            for node in ast.walk(tree):
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

    def origin(self, line: int) -> int:
        """Where the first name that a statement reads was last assigned before it."""
        statement = next(
            (n for n in ast.walk(self.tree) if isinstance(n, ast.stmt) and _is_plain(n)
             and n.lineno <= line <= (n.end_lineno or n.lineno)), None)  # fmt: skip
        if statement is None:
            return line
        read = [
            node.id
            for node in ast.walk(statement)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
        ]
        for name in read:
            found = self.line_where(partial(_assigns, name=name), near=line - 1)
            if 0 < found < line:
                return found
        return line

    def mentions(self, words: Sequence[str]) -> bool:
        """Whether any name of the program is one of ``words``."""
        statements = (node for node in ast.walk(self.tree) if isinstance(node, ast.stmt))
        return any(mentioned_names(statement) & set(words) for statement in statements)

    def kept_list_line(self, parts: Sequence[str] = ("",)) -> int:
        """Where a list grows that nothing empties or replaces; 0 if there is none.

        What is assigned once, at the top, when an object is made or before the loop of a
        generator, counts as never replaced. For lists of an object that is assigned repeatedly, the
        line of that assignment.

        Args:
            parts: One of them is part of a name in the statement.
        """
        renewed: set[str] = set()
        for node in ast.walk(self.tree):
            again = isinstance(node, (ast.For, ast.While)) or (
                isinstance(node, ast.FunctionDef)
                and node.name != "__init__"
                and not any(isinstance(inner, ast.Yield) for inner in ast.walk(node))
            )
            for inner in ast.walk(node) if again else ():
                renewed |= _emptied(inner)
        growing = [
            (called.value, called.lineno)
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Call)
            and isinstance(called := node.func, ast.Attribute)
            and called.attr in ("append", "extend")
            and any(part in name for part in parts for name in mentioned_names(node))
        ]
        growing += [
            (node.target, node.lineno)
            for node in ast.walk(self.tree)
            if isinstance(node, ast.AugAssign)
            and isinstance(node.value, (ast.List, ast.ListComp))
            and any(part in name for part in parts for name in mentioned_names(node))
        ]
        kept = [(name, line) for name, line in growing if _place(name) not in renewed]
        same = [line for name, line in kept if _root(name) not in renewed]
        holders = [
            self.line_where(partial(_assigns, name=_root(name)), near=line) for name, line in kept
        ]
        return min(same or [line for line in holders if line], default=0)


def _imported(tree: ast.Module) -> list[str]:
    """The names of the modules that a text imports, and of what it takes from them."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            start = f"{node.module}." if node.module else ""
            names |= {f"{start}{alias.name}" for alias in node.names} | {start[:-1]}
    return sorted(names - {""})


def read_source(path: Path) -> Source:
    """The text of ``path``; raises ``InvalidValueError`` if it is not a Python program."""
    try:
        text, cells = script_of(path) if is_notebook(path) else (path.read_bytes(), ())
    except OSError as error:
        raise InvalidValueError(
            f"`{path}`",
            error.strerror or "an unreadable file",
            "a readable Python file",
            "check the path",
        ) from error
    tree = parse_program(path, text, cells)
    lines = text if isinstance(text, str) else decode_source(text)
    return Source(path.absolute(), tree, tuple(lines.splitlines()))


def assigned_names(statement: ast.stmt) -> set[str]:
    """Names that a statement assigns to, also by ``+=`` and by ``append``."""
    if isinstance(statement, ast.Assign):
        return {name_of(target) for target in statement.targets}
    if isinstance(statement, (ast.AugAssign, ast.AnnAssign)):
        return {name_of(statement.target)}
    return set()


def _assigns(statement: ast.stmt, name: str) -> bool:
    return name in assigned_names(statement)


def mentioned_names(tree: ast.AST) -> set[str]:
    """Every name and attribute that a statement, or a part of one, reads or writes."""
    return {name_of(node) for node in ast.walk(tree)} - {""}


def name_of(node: ast.AST) -> str:
    """The last part of a name or an attribute; empty for anything else."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _emptied(node: ast.AST) -> set[str]:
    """Names that are assigned to, deleted or cleared by a node."""
    if isinstance(node, ast.Assign):
        pairs = [t.elts if isinstance(t, ast.Tuple) else [t] for t in node.targets]
        return {_place(_sliced(part)) for parts in pairs for part in parts}
    if isinstance(node, ast.Delete):
        return {_place(_sliced(part)) for part in node.targets}
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return {_place(node.func.value)} if node.func.attr == "clear" else set()
    return set()


def _place(node: ast.expr) -> str:
    """A name; one with a dot before it is an attribute, and no local variable of that name."""
    return f".{node.attr}" if isinstance(node, ast.Attribute) else name_of(node)


def _root(node: ast.expr) -> str:
    """The first name of ``name.a.b``."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return name_of(node)


def _sliced(node: ast.expr) -> ast.expr:
    """What a slice is taken of; itself for anything else."""
    return node.value if isinstance(node, ast.Subscript) else node


def _is_plain(node: ast.stmt) -> bool:
    """A statement without a body."""
    return not hasattr(node, "body")
