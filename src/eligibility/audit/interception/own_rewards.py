"""Rewards of a program without an environment: numbers that it computes from what it has drawn.

A bandit pays for an arm, a function for an answer. The statement that gives the reward runs, and
the probe's reward takes its place. It is the reward of what was drawn since the one before it.
"""

from __future__ import annotations

import ast
import builtins
import os
from collections.abc import Sequence
from itertools import chain
from numbers import Real
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from eligibility.audit.choices import PathComplete
from eligibility.audit.interception.calls import Group, one_after_another
from eligibility.audit.interception.probe import TERMINAL, Probe
from eligibility.audit.interception.recorder import Recorder
from eligibility.audit.interception.statements import targets_of
from eligibility.audit.job import OWN_STATES, STATES, OwnProblem
from eligibility.audit.patches import Patches
from eligibility.audit.rewritten import rewrite
from eligibility.audit.trace import OWN_REWARD

_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
# Names by which a rewritten statement calls the audit.
_EARNED, _ASIDE = "__eligibility_earned", "__eligibility_aside"


def replace_rewards(patches: Patches, recorder: Recorder, problem: OwnProblem) -> None:
    """The reward that the problem names, in whatever is compiled from now on."""
    rewards = _Rewards(recorder, problem)
    recorder.begin = rewards.begin
    recorder.choices.asked = rewards.stop_if_complete
    if problem.reward is None:
        return
    name, line, target = problem.reward

    def change(tree: ast.Module, file: str) -> ast.Module:
        if os.path.basename(file) != name:
            return tree
        changed: ast.Module = _Rewriting(_scope_of(tree, line), target).visit(tree)
        return changed

    rewrite(patches, change)
    vars(builtins).update({_EARNED: rewards.earned, _ASIDE: recorder.looking})
    for known in (_EARNED, _ASIDE):
        patches.callback(vars(builtins).pop, known)


class _Rewriting(ast.NodeTransformer):
    """Puts the probe's reward in the place of every number that a name is given.

    The statements run aside: what they draw is the reward's luck. The name, ``target``, belongs to
    a function or a module, ``scope``.
    """

    def __init__(self, scope: ast.AST, target: str) -> None:
        self._scope, self._target = scope, target
        self._inside = False

    def visit(self, node: ast.AST) -> Any:
        """A statement that gives the name something, as two; any other node as it is."""
        if node is self._scope:
            self._inside = True
            self.generic_visit(node)
            self._inside = False
            return node
        if isinstance(node, _FUNCTIONS) and self._inside:
            return node
        if not self._inside or not isinstance(node, ast.Assign | ast.AnnAssign | ast.Expr):
            return self.generic_visit(node)
        if self._target not in map(ast.unparse, targets_of(node)):
            return node
        held = self._target + "[-1]" * isinstance(node, ast.Expr)  # of `rewards.append(…)`
        aside = ast.withitem(ast.Call(ast.Name(_ASIDE, ast.Load()), [], []))
        after = ast.parse(f"{held} = {_EARNED}({held})").body[0]
        for inner in ast.walk(after):
            ast.copy_location(inner, node)
        return [ast.copy_location(ast.With([aside], [node]), node), after]


def _scope_of(tree: ast.Module, line: int) -> ast.AST:
    """The innermost function around a line, or the module."""
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, _FUNCTIONS) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    return max(around, key=lambda node: node.lineno, default=tree)


class _Rewards:
    """Makes steps of episodes out of rewards, and of the draws before each."""

    def __init__(self, recorder: Recorder, problem: OwnProblem) -> None:
        self._recorder, self._problem = recorder, problem
        self._rows: list[Probe] = []  # a place for each of the rewards that are given at once
        self._given = 0
        self._again: list[float] = []  # the rewards that were given last

    def begin(self) -> None:
        """From here on the program acts."""
        self._row()
        self._start()

    def stop_if_complete(self) -> None:
        """A choice is about to be made: after an update the path is complete."""
        try:
            self._recorder.stop_if_complete()
        except PathComplete:
            draws = self._recorder.choices.draws
            if draws and draws[-1].source == "environment":  # contexts that are not seen any more
                self._recorder.choices.settle(len(draws) - 1)
            raise

    def earned(self, value: Any) -> Any:
        """The probe's rewards in the form of ``value``, or it itself if it is no reward."""
        calls, numbers = self._recorder.calls, _numbers_in(value)
        if self._again and not calls.take() and len(numbers) == len(self._rows):
            return _like(value, self._again)  # the name is given something else for the same draws
        drawn = _in_turn(calls.take(), len(numbers)) if self._rows and numbers else []
        if not drawn or (self._given and len(numbers) != len(self._rows)):
            return value
        kind = "cost" if self._problem.cost else "reward"
        said = ":".join(map(str, (kind, *(self._problem.reward or ()))))
        self._recorder.note(f"{OWN_REWARD}{said}")
        while len(self._rows) < len(numbers):
            self._recorder.on_reset(self._row())
        start = self._rows[0].start
        past = [[float(2 * (self._given + row) + start)] for row in range(len(numbers))]
        totals = [0.0] * len(numbers)
        for time, call in enumerate(drawn, 1):
            calls.give(call)
            for row, probe in enumerate(self._rows):
                probe.time = time
                part = call.part(row, len(numbers))
                totals[row] += self._step(probe, part, past[row], time == len(drawn))
        self._given += len(numbers)
        self._start()
        sign = -1.0 if self._problem.cost else 1.0
        self._again = [sign * total for total in totals]
        return _like(value, self._again)

    def _row(self) -> Probe:
        """A new place."""
        size = spaces.Discrete(STATES)
        probe = Probe("rewards of the program's own", size, size, self._recorder, False, "")
        self._recorder.environments.append(probe)
        self._rows.append(probe)
        return probe

    def _start(self) -> None:
        """Episodes begin."""
        first, *others = self._rows
        if self._problem.contexts:
            first.reset()
            noise = self._recorder.job.noise or 0
            self._recorder.reseed(1000 * noise + 2 * self._given + first.start)
        else:
            self._recorder.on_reset(first)
        for probe in others:
            self._recorder.on_reset(probe)

    def _step(self, probe: Probe, part: Group, past: list[float], last: bool) -> float:
        """What a row earns for its part of a call; any number, for each of its whole numbers."""
        state = _state(int(past[-1]))
        draws = self._recorder.choices.draws
        continuous = [bool(unit) and draws[unit[-1]].loc is not None for unit in part.units]
        x = np.array([v for v, c in zip(part.values, continuous, strict=True) if c])
        past += [v for v, c in zip(part.values, continuous, strict=True) if not c]
        draw = np.random.Generator(np.random.PCG64(_number_of(past))).normal
        worth = float(draw() + draw(size=len(x)) @ x - 0.3 * x @ x)
        after = TERMINAL if last else _state(int(past[-1]))
        return self._recorder.on_step(
            probe, np.array(part.values), state, round(worth, 2), after, last, False
        )


def _numbers_in(value: Any) -> list[float]:
    """The numbers of a value that has nothing else, and no gradient; none of any other."""
    if isinstance(value, torch.Tensor):
        return [] if value.requires_grad else value.reshape(-1).tolist()
    if isinstance(value, np.ndarray):
        return value.reshape(-1).tolist() if value.dtype.kind in "biuf" else []
    if isinstance(value, list | tuple):
        parts = [_numbers_in(each) for each in value]
        return list(chain.from_iterable(parts)) if all(len(part) == 1 for part in parts) else []
    return [float(value)] if isinstance(value, Real | np.number) else []


def _like(value: Any, numbers: Sequence[float]) -> Any:
    """The numbers in the form of a value."""
    if isinstance(value, torch.Tensor):
        dtype = value.dtype if value.is_floating_point() else torch.get_default_dtype()
        return torch.tensor(numbers, dtype=dtype).reshape(value.shape)
    if isinstance(value, np.ndarray):
        return np.reshape(numbers, value.shape)
    if isinstance(value, list | tuple):
        return type(value)(_like(each, [n]) for each, n in zip(value, numbers, strict=True))
    return np.float64(numbers[0]) if isinstance(value, np.number) else float(numbers[0])


def _in_turn(calls: Sequence[Group], rows: int) -> list[Group]:
    """The calls that drew for all rows, one after the other; none if they did not."""
    fits = all(call.values and len(call.units) == len(call.values) for call in calls)
    widths = {len(call.units) % rows for call in calls}
    if fits and len(calls) == rows and len(widths) == 1 and widths != {0}:
        return [one_after_another(calls)]
    return list(calls) if fits and widths == {0} else []


def _state(number: int) -> int:
    """Any state but the terminal one."""
    number %= OWN_STATES - 1
    return number if number < TERMINAL else number + 1


def _number_of(past: Sequence[float]) -> int:
    """A whole number that stands for what was drawn, the same in every run."""
    return abs(hash(tuple(past)))
