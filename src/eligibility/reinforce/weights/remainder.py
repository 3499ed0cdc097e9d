"""The parameters that no closed form covers: one gradient a sample by ``torch.func``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.distributions import Distribution
from torch.func import functional_call, grad_and_value, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from eligibility.reinforce.weights.score import Score

TORCH_FUNC = "torch.func"
LOOP = "backward loop"


def remaining_eligibilities(
    module: nn.Module,
    score: Score,
    inputs: tuple[Tensor, ...],
    action: Tensor,
    parameters: Mapping[str, Tensor],
) -> tuple[dict[str, Tensor], Tensor, str]:
    """The eligibilities ``[N, *shape]`` of named parameters, ``log p`` ``[N]``, and the route."""
    try:
        return *_by_torch_func(module, score, inputs, action, parameters), TORCH_FUNC
    except RuntimeError:  # an operation that torch.func cannot batch, an LSTM for instance
        return *_by_backward(score, inputs, action, parameters), LOOP


def _by_torch_func(
    module: nn.Module,
    score: Score,
    inputs: tuple[Tensor, ...],
    action: Tensor,
    parameters: Mapping[str, Tensor],
) -> tuple[dict[str, Tensor], Tensor]:
    def log_prob(values: dict[str, Tensor], x: tuple[Tensor, ...], choice: Tensor) -> Tensor:
        substituted = replace(score, module=lambda *one: functional_call(module, values, one))
        return substituted(tuple(tensor[None] for tensor in x), choice[None]).sum()

    values = {name: parameter.detach() for name, parameter in parameters.items()}
    # vmap has no rule for fused attention and would warn and loop.
    with _unvalidated(), sdpa_kernel(SDPBackend.MATH):
        result: tuple[dict[str, Tensor], Tensor] = vmap(
            grad_and_value(log_prob), in_dims=(None, 0, 0)
        )(values, inputs, action)
    return result


def _by_backward(
    score: Score,
    inputs: tuple[Tensor, ...],
    action: Tensor,
    parameters: Mapping[str, Tensor],
) -> tuple[dict[str, Tensor], Tensor]:
    gradients: list[tuple[Tensor, ...]] = []
    log_probs: list[Tensor] = []
    for n in range(len(action)):
        with torch.enable_grad():
            log_prob = score(tuple(tensor[n : n + 1] for tensor in inputs), action[n : n + 1])
        log_probs.append(log_prob.detach())
        gradients.append(
            torch.autograd.grad(
                log_prob.sum(),
                list(parameters.values()),
                allow_unused=True,
                materialize_grads=True,
            )
        )
    stacked = [torch.stack(column) for column in zip(*gradients, strict=True)]
    return dict(zip(parameters, stacked, strict=True)), torch.cat(log_probs)


@contextmanager
def _unvalidated() -> Iterator[None]:
    """Distributions made inside vmap cannot check their values: the first forward has done so."""
    before = Distribution._validate_args  # torch has a setter only
    Distribution.set_default_validate_args(False)
    try:
        yield
    finally:
        Distribution.set_default_validate_args(before)
