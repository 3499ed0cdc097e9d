"""What a call that computes a log-probability tells of it."""

from __future__ import annotations

from typing import Any

import torch

from eligibility.audit.trace import Score
from eligibility.audit.user_code import user_place

_MAX_NUMBERS = 64


def score_of(
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
    return Score(
        user_place(),
        result.requires_grad,
        tuple(dist.batch_shape),
        tuple(value.shape),
        tuple(result.shape),
        tuple(probs),
        tuple(scales),
        tuple(_numbers(value)),
        steps,
    )


def score_of_table(probs: torch.Tensor, steps: int, scored: bool) -> Score:
    """The record of the probabilities of all actions, by hand; ``scored`` by their logarithms."""
    batch = tuple(probs.shape[:-1])
    return Score(user_place(), scored, batch, (), (), tuple(_numbers(probs)), (), (), steps)


def has_numbers(tensor: torch.Tensor) -> bool:
    """Whether its elements can be read: not within torch.func, nor while something is traced."""
    return not torch._C._functorch.is_functorch_wrapped_tensor(tensor)


def _numbers(tensor: torch.Tensor) -> list[float]:
    """The elements, if they are few."""
    few = tensor.numel() <= _MAX_NUMBERS
    return tensor.detach().double().reshape(-1).tolist() if few else []
