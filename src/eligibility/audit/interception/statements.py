"""Follows the user's statements: the numbers that each of them made, in the order of the run.

Run twice with different rewards, the same statements show which numbers follow which rewards. So a
fault can be placed by what a value depends on, whatever its name is.
"""

from __future__ import annotations

import ast
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch

from eligibility.audit.interception.recorder import Recorder
from eligibility.audit.trace import ARGUMENTS, Made
from eligibility.audit.user_code import is_user_file

MAX_NUMBERS = 64  # of a statement
MAX_REWARDS = 4096  # the same, where a statement may give the rewards of a batch
MAX_MADE = 5000
_DEPTH = 4  # of lists in lists
_CHANGING = ("append", "appendleft", "insert", "extend", "reverse", "add", "put")
# Parts of a statement, with frames of their own: the statement has not run yet when they end.
_WITHIN = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<lambda>")
_Tracer = Callable[[FrameType, str, Any], Any]


class _Follower:
    """Collects what statements made."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._running: dict[int, ast.stmt] = {}  # of each frame, the statement that is running
        self._kept: list[Any] = []  # alive, so that no two of them have one identity
        self._leads = _Leads()

    def enter(self, frame: FrameType, event: str, argument: Any) -> _Tracer | None:
        """A function of anybody is called: follow it if it is the user's."""
        file = frame.f_code.co_filename
        if event != "call" or not is_user_file(file) or not _statements(file):
            return None
        caller = frame.f_back
        statement = self._running.get(id(caller))
        if caller is not None and statement is not None:
            given = list(frame.f_locals.values())  # only the arguments are there yet
            self._keep(caller, statement.lineno, ARGUMENTS, given)
        return self._step

    def _step(self, frame: FrameType, event: str, argument: Any) -> _Tracer | None:
        if len(self._recorder.made) >= MAX_MADE:
            return None
        if event == "line":
            begun = _statements(frame.f_code.co_filename).get(frame.f_lineno)
            before = self._running.get(id(frame))
            if begun is not before or (begun is not None and begun.lineno == frame.f_lineno):
                self._finish(frame)
            if begun is not None:
                self._running[id(frame)] = begun
        elif event == "return":
            ended = self._running.get(id(frame))
            self._finish(frame)
            self._running.pop(id(frame), None)
            if ended is not None and _gives(ended):
                self._keep(frame, ended.lineno, "return", argument)
        return self._step

    def _finish(self, frame: FrameType) -> None:
        """The statement of a frame has run: note what it made."""
        statement = self._running.pop(id(frame), None)
        if statement is None or not self._recorder.running or frame.f_code.co_name in _WITHIN:
            return
        for target in targets_of(statement):
            self._keep(frame, statement.lineno, ast.unparse(target), _value(frame, target))

    def _keep(self, frame: FrameType, line: int, name: str, value: Any) -> None:
        if not self._recorder.running:
            return
        numbers: list[float] = []
        attached: list[bool] = []
        most = MAX_REWARDS if self._recorder.job.problem else MAX_NUMBERS
        if not _collect(value, numbers, attached, _DEPTH, most) or not numbers:
            return
        place, scope = (frame.f_code.co_filename, line), frame.f_code.co_firstlineno
        self._kept.append(value)
        nodes = list(_nodes(value, _DEPTH))
        leads = self._leads.of(nodes, self._recorder.parameters.tensors)
        steps = len(self._recorder.steps)
        self._recorder.made.append(
            Made(place, scope, name, tuple(numbers), tuple(attached), leads, steps, id(value))
        )


@contextmanager
def follow(recorder: Recorder) -> Iterator[None]:
    """Within it, ``recorder`` is told what the user's statements make, once the problem is met."""
    before = sys.gettrace()
    sys.settrace(_Follower(recorder).enter)
    try:
        yield
    finally:
        sys.settrace(before)


@lru_cache(maxsize=64)
def _statements(file: str) -> dict[int, ast.stmt]:
    """For each line, the innermost statement without a body that it belongs to."""
    try:
        tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return {}
    return {
        line: node
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt) and not hasattr(node, "body")
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


@lru_cache(maxsize=4096)
def targets_of(statement: ast.stmt) -> tuple[ast.expr, ...]:
    """What a statement changes: names, attributes, and what an element is put into."""
    if isinstance(statement, ast.Assign):
        found: Sequence[ast.expr] = statement.targets
    elif isinstance(statement, (ast.AugAssign, ast.AnnAssign)):
        found = [statement.target]
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        called = statement.value.func
        changes = isinstance(called, ast.Attribute) and called.attr in _CHANGING
        found = [called.value] if changes and isinstance(called, ast.Attribute) else []
    else:
        found = []
    parts = (e for t in found for e in (t.elts if isinstance(t, (ast.Tuple, ast.List)) else [t]))
    return tuple(_base(part) for part in parts)


def _gives(statement: ast.stmt) -> bool:
    """Whether a statement hands over what it makes: it returns or yields."""
    yields = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Yield)
    return yields or isinstance(statement, ast.Return)


def _base(target: ast.expr) -> ast.expr:
    """``x`` of ``x[i]`` and of ``*x``."""
    while isinstance(target, (ast.Subscript, ast.Starred)):
        target = target.value
    return target


def _value(frame: FrameType, target: ast.expr) -> Any:
    """What a name or an attribute holds now; nothing of the user's is called for it."""
    if isinstance(target, ast.Name):
        return frame.f_locals.get(target.id, frame.f_globals.get(target.id))
    if isinstance(target, ast.Attribute):
        return getattr(_value(frame, target.value), "__dict__", {}).get(target.attr)
    return None


def _collect(value: Any, numbers: list[float], attached: list[bool], depth: int, most: int) -> bool:
    """Append the numbers in a value, and whether each carries a gradient.

    False if there are too many, or it is not data.
    """
    if isinstance(value, (bool, int, float, np.number)):
        numbers.append(float(value))
    elif isinstance(value, (torch.Tensor, np.ndarray)):
        size = value.numel() if isinstance(value, torch.Tensor) else value.size
        if size + len(numbers) > most:
            return False
        plain = value.detach().cpu() if isinstance(value, torch.Tensor) else value
        if isinstance(plain, np.ndarray) and plain.dtype.kind not in "fiub":
            return plain.dtype.kind == "O" and _collect(
                plain.tolist(), numbers, attached, depth - 1, most
            )
        numbers += map(float, plain.reshape(-1).tolist())
    elif isinstance(value, (list, tuple, deque, dict)) and depth:
        items = value.values() if isinstance(value, dict) else value
        return all(_collect(item, numbers, attached, depth - 1, most) for item in items)
    # a new leaf leads nowhere
    carries = isinstance(value, torch.Tensor) and value.grad_fn is not None
    attached += [carries] * (len(numbers) - len(attached))
    return len(numbers) <= most


def _nodes(value: Any, depth: int) -> Iterator[Any]:
    """The nodes of the graph that the tensors in a value hang from."""
    if isinstance(value, torch.Tensor):
        if value.grad_fn is not None:
            yield value.grad_fn
    elif isinstance(value, (list, tuple, deque, dict)) and depth:
        for item in value.values() if isinstance(value, dict) else value:
            yield from _nodes(item, depth - 1)


class _Leads:
    """Which parameters lie below a node of a graph; each node is looked at once."""

    def __init__(self) -> None:
        self._below: dict[Any, frozenset[int]] = {}  # identities of leaves

    def of(self, nodes: Sequence[Any], tensors: Sequence[torch.Tensor]) -> tuple[int, ...]:
        """The numbers of those of ``tensors`` that are reached."""
        leaves = frozenset().union(*map(self._leaves, nodes))
        return tuple(number for number, tensor in enumerate(tensors) if id(tensor) in leaves)

    def _leaves(self, node: Any) -> frozenset[int]:
        waiting = [node]
        while waiting:
            top = waiting[-1]
            inner = [below for below, _ in top.next_functions if below is not None]
            missing = [below for below in inner if below not in self._below]
            if missing:
                waiting += missing
                continue
            own = {id(top.variable)} if hasattr(top, "variable") else set()
            self._below[waiting.pop()] = frozenset(own).union(*map(self._below.__getitem__, inner))
        return self._below[node]
