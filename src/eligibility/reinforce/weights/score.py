"""From a module's output to the log-probability of each sample's action, and its derivatives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Distribution
from torch.func import functional_call, grad_and_value, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from eligibility.errors import InvalidTypeError, ShapeError
from eligibility.rules.outcomes import check_value
from eligibility.shapes import check_action, check_device


@dataclass(frozen=True)
class Score:
    """``log p(action)`` under the policy that a module computes."""

    module: Callable[..., Any]  # returns logits, a distribution, or whatever ``distribution`` takes
    # The module's output → a distribution; None: logits of a Categorical.
    distribution: Callable[[Any], Distribution] | None

    def __call__(self, inputs: tuple[Tensor, ...], action: Tensor) -> Tensor:
        """``log p`` of each sample's whole action, ``[N]``; unchecked, so vmap can take it."""
        return _log_prob(self._policy(inputs), action)

    def checked(self, inputs: tuple[Tensor, ...], action: Tensor) -> Tensor:
        """The same, after the checks of the action against the policy."""
        policy = self._policy(inputs)
        wanted = policy.batch_shape + policy.event_shape
        samples = inputs[0].shape[0]
        if action.shape != wanted or wanted[:1] != (samples,):
            raise ShapeError(
                "`action`",
                f"shape {list(action.shape)}",
                f"{list(wanted)} for {samples} samples",
                f"the policy is a {type(policy).__name__} with batch shape "
                f"{list(policy.batch_shape)} and event shape {list(policy.event_shape)}; "
                "its first axis must be that of the samples",
            )
        # An index of another device reads memory that holds nothing.
        like = policy.logits if isinstance(policy, Categorical) else inputs[0]
        check_device(action, like, "action", "logits" if like is not inputs[0] else "inputs")
        if isinstance(policy, Categorical):
            check_action(action, policy.probs.shape[-1])
        check_value(policy, action)
        return _log_prob(policy, action)

    def _policy(self, inputs: tuple[Tensor, ...]) -> Distribution:
        output = self.module(*inputs)
        if self.distribution is not None:
            output = self.distribution(output)
        elif isinstance(output, Tensor):
            output = Categorical(logits=output, validate_args=False)
        if isinstance(output, Distribution):
            return output
        raise InvalidTypeError(
            "the output of `module`",
            type(output).__name__,
            "logits, or a torch.distributions object",
            "pass distribution=, a function from the output to a distribution",
        )


def _log_prob(policy: Distribution, action: Tensor) -> Tensor:
    log_prob: Tensor = policy.log_prob(action)
    return log_prob.flatten(1).sum(1) if log_prob.ndim > 1 else log_prob


def as_inputs(inputs: Any) -> tuple[Tensor, ...]:
    """Copies, because the factors keep the input and callers reuse their buffers."""
    given = inputs if isinstance(inputs, tuple) else (inputs,)
    if not given or not all(isinstance(tensor, Tensor) for tensor in given):
        raise InvalidTypeError(
            "`inputs`",
            type(inputs).__name__,
            "a tensor, or a tuple of tensors",
            "wrap a module that takes anything else in one that takes tensors",
        )
    sizes = {tensor.shape[0] if tensor.ndim else 0 for tensor in given}
    if len(sizes) > 1 or 0 in sizes:
        raise ShapeError(
            "`inputs`",
            f"shapes {[list(tensor.shape) for tensor in given]}",
            "the same number of samples, at least 1, on the first axis of each",
            "put the samples first",
        )
    return tuple(tensor.detach().clone() for tensor in given)


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
    score: Score, inputs: tuple[Tensor, ...], action: Tensor, parameters: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], Tensor]:
    gradients: list[tuple[Tensor, ...]] = []
    log_probs: list[Tensor] = []
    for n in range(len(action)):
        with torch.enable_grad():
            log_prob = score(tuple(tensor[n : n + 1] for tensor in inputs), action[n : n + 1])
        log_probs.append(log_prob.detach())
        gradients.append(
            torch.autograd.grad(
                log_prob.sum(), list(parameters.values()), allow_unused=True, materialize_grads=True
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
