"""The log-probabilities that a program computes, and what each call tells of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from eligibility.audit.trace import Score
from eligibility.audit.user_code import user_place

_MAX_SCORES = 256
_MAX_NUMBERS = 256


class Scores:
    """The log-probabilities that a program has computed."""

    def __init__(self, steps: Callable[[], int]) -> None:
        self._steps = steps
        self._scores: list[Score] = []
        self._attached = 0
        self._tables: list[Score] = []

    def __len__(self) -> int:
        return len(self._scores)

    def add(self, dist: torch.distributions.Distribution, value: Any, result: Any) -> None:
        """The program has computed a log-probability."""
        if isinstance(result, torch.Tensor) and self._room(result):
            self._attached += result.requires_grad
            self._scores.append(_score_of(dist, value, result, self._steps()))

    def add_table(self, probs: torch.Tensor) -> None:
        """The program has computed the log-probabilities of all actions, by hand."""
        if self._room(probs):
            self._attached += probs.requires_grad
            self._scores.append(self._of_table(probs, scored=True))

    def add_labelled(self, probs: torch.Tensor, labels: torch.Tensor) -> None:
        """The program has computed the cross-entropy of labels: of actions, say, or of answers."""
        if self._room(probs):
            self._attached += 1
            score = self._of_table(probs, scored=True)
            values = () if labels.is_floating_point() else tuple(_numbers(labels))
            self._scores.append(replace(score, value_shape=tuple(labels.shape), values=values))

    def add_probabilities(self, probs: torch.Tensor) -> None:
        """The program has computed probabilities; their logarithms are perhaps its scores."""
        if len(self._tables) < _MAX_SCORES and has_numbers(probs):
            self._tables.append(self._of_table(probs, scored=False))

    def all(self) -> tuple[Score, ...]:
        """Those; where none was computed, the tables of probabilities, the late ones if any."""
        late = [table for table in self._tables if table.steps_before == self._steps()]
        return tuple(self._scores or late or self._tables)

    def _of_table(self, probs: torch.Tensor, scored: bool) -> Score:
        """The probabilities of all actions, by hand; ``scored`` by their logarithms."""
        numbers, batch = tuple(_numbers(probs)), tuple(probs.shape[:-1])
        return Score(user_place(), scored, batch, (), numbers, (), (), self._steps())

    def _room(self, result: torch.Tensor) -> bool:
        """Whether one more is kept; those with a graph are, after an evaluation without one."""
        known = self._attached if result.requires_grad else len(self._scores)
        return known < _MAX_SCORES and has_numbers(result)


def _score_of(
    dist: torch.distributions.Distribution, value: Any, result: torch.Tensor, steps: int
) -> Score:
    """The record of ``result = dist.log_prob(value)``, with the transitions made so far."""
    probs, scales = [], []
    if isinstance(dist, torch.distributions.Categorical):
        probs = _numbers(dist.probs)
    elif isinstance(dist, torch.distributions.Bernoulli):
        probs = _numbers(torch.stack([1.0 - dist.probs, dist.probs], dim=-1))
    elif isinstance(dist, torch.distributions.Normal):
        probs, scales = _numbers(dist.loc), _numbers(dist.scale)
    elif isinstance(dist, torch.distributions.Beta):
        probs, scales = _numbers(dist.concentration1), _numbers(dist.concentration0)
    value = torch.as_tensor(value)
    shapes = tuple(dist.batch_shape), tuple(value.shape)
    numbers = tuple(probs), tuple(scales), tuple(_numbers(value))
    return Score(user_place(), result.requires_grad, *shapes, *numbers, steps)


def has_numbers(tensor: torch.Tensor) -> bool:
    """Whether its elements can be read: not within torch.func, nor while something is traced."""
    return not torch._C._functorch.is_functorch_wrapped_tensor(tensor)


def _numbers(tensor: torch.Tensor) -> list[float]:
    """The elements, if they are few."""
    few = tensor.numel() <= _MAX_NUMBERS
    return tensor.detach().double().reshape(-1).tolist() if few else []
