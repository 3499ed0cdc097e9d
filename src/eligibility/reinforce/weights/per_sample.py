"""`per_sample_eligibilities`: the eligibility of every weight for every sample, kept in factors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.distributions import Distribution
from torch.nn.modules.batchnorm import _BatchNorm

from eligibility.arguments import check_given
from eligibility.errors import InvalidTypeError, InvalidValueError
from eligibility.reinforce.weights.capture import capture
from eligibility.reinforce.weights.factors import Dense, Factors
from eligibility.reinforce.weights.score import Score, as_inputs, remaining_eligibilities
from eligibility.scalars import check_callable, described
from eligibility.shapes import check_shape

CLOSED_FORM = "closed form"

PerParameter: TypeAlias = dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class PerSampleEligibilities(Mapping[str, Tensor]):
    """Williams' ``e_ij`` of N samples: a mapping, parameter name → ``[N, *shape]``.

    A value is multiplied out when it is asked for and not kept; the methods work on the factors
    and hold no gradient per sample, but for a few samples at a time where a weight serves several
    positions of one sample.

    Attributes:
        log_prob: ``log p`` of each sample's action, ``[N]``.
        factors: Parameter name → what its eligibilities are made of.
        routes: Parameter name → "closed form", "torch.func" or "backward loop".
    """

    log_prob: Float[Tensor, " N"]
    factors: Mapping[str, Factors]
    routes: Mapping[str, str]

    def __getitem__(self, name: str) -> Tensor:
        return self.factors[name].materialize()

    def __iter__(self) -> Iterator[str]:
        return iter(self.factors)

    def __len__(self) -> int:
        return len(self.factors)

    def __repr__(self) -> str:
        parameters = ", ".join(
            f"{name} {list(factors.parameter.shape)} by {self.routes[name]}"
            for name, factors in self.factors.items()
        )
        return f"PerSampleEligibilities({len(self.log_prob)} samples: {parameters})"

    def materialize(self) -> PerParameter:
        """Every eligibility multiplied out: N times the parameters in memory."""
        return dict(self)

    def mean(self, weights: Tensor | None = None) -> PerParameter:
        """``1/N Σ_n w_n e_n`` of every weight: REINFORCE's gradient where w is the advantage.

        Args:
            weights: ``[N]``; None: all 1.
        """
        return self._each(lambda factors, w: factors.mean(w), weights)

    def second_moment(self, weights: Tensor | None = None) -> PerParameter:
        """``1/N Σ_n w_n e_n²`` of every weight: ``E[e²]``, or ``E[r e²]`` where w is the reward.

        Their ratio is the baseline of least variance; it must come from other samples than those
        it is used on, or the gradient is biased.

        Args:
            weights: ``[N]``; None: all 1.
        """
        return self._each(lambda factors, w: factors.second_moment(w), weights)

    def squared_norm(self) -> Float[Tensor, " N"]:
        """``‖e_n‖²`` of each sample, over all parameters."""
        norms = [factors.squared_norm().to(self.log_prob) for factors in self.factors.values()]
        return torch.stack(norms).sum(0)

    def _each(
        self, quantity: Callable[[Factors, Tensor], Tensor], weights: Tensor | None
    ) -> PerParameter:
        if weights is None:
            weights = torch.ones_like(self.log_prob)
        check_shape(weights, self.log_prob.shape, "weights", "one number for each sample")
        return {
            name: quantity(factors, weights.detach().to(factors.parameter.dtype))
            for name, factors in self.factors.items()
        }


def per_sample_eligibilities(
    module: nn.Module,
    inputs: Any,
    action: Tensor,
    *,
    distribution: Callable[[Any], Distribution] | None = None,
    verify: bool = True,
) -> PerSampleEligibilities:
    """Williams' characteristic eligibility ``e_ij = ∂ log p(a_n | x_n)/∂w_ij`` of every weight.

    One forward, and one backward to the outputs of the layers. There ``δ = ∂ log p/∂output``, and
    for a linear layer ``e_n = δ_n x_nᵀ``: the outer product stays in its factors.

    Args:
        module: A policy network. Returns logits ``[N, …, K]`` (the action is then a category), a
            distribution, or anything that ``distribution`` takes.
        inputs: Its argument, or a tuple of its arguments; samples on the first axis, ``[N, …]``.
        action: ``[N, …]``, the batch and event shape of the policy. What follows the first axis
            (time steps, parts of an action) is one joint action: its log-probabilities are added.
        distribution: The module's output → a ``torch.distributions`` object.
        verify: Check with one more backward pass that the rows of every layer are the samples;
            layers where they are not (time on the first axis, a table of positions shared by all
            samples) go by torch.func. Switch it off in a loop over the same network.

    Returns:
        The eligibilities of every parameter that requires a gradient, by name as in
        ``module.named_parameters()``, multiplied out when asked for.

    Raises:
        ShapeError, InvalidTypeError, InvalidValueError: The action is not an outcome of the policy;
            the module mixes its samples (batch norm in training mode) or is random (dropout next
            to layers without a closed form).

    Notes:
        Closed forms: Linear, Conv1d/2d/3d, Embedding, LayerNorm, GroupNorm, and BatchNorm in
        evaluation mode, each used once or often, with or without tied weights. All other
        parameters by ``torch.func``, or, where that cannot batch an operation, by one backward
        a sample; `PerSampleEligibilities.routes` says which. The module gets no attributes and
        keeps no hooks; its forward runs as it is, in its mode.

    Example:
        The Bernoulli-logistic unit of Williams 1992, eq. (7): ``e_j = (y − p) x_j``.

        >>> unit = nn.Linear(2, 1, bias=False)
        >>> _ = nn.init.zeros_(unit.weight)
        >>> e = per_sample_eligibilities(
        ...     unit,
        ...     torch.tensor([[1.0, 2.0], [3.0, 4.0]]),
        ...     torch.tensor([[1.0], [0.0]]),
        ...     distribution=lambda logit: torch.distributions.Bernoulli(logits=logit),
        ... )
        >>> e["weight"]
        tensor([[[ 0.5000,  1.0000]],
                [[-1.5000, -2.0000]]])
        >>> e.second_moment()["weight"]
        tensor([[1.2500, 2.5000]])

    References:
        Williams 1992, Machine Learning 8:229-256, §4. Goodfellow 2015, arXiv:1510.01799, for the
        norm of an outer product; Dangel, Kunstner and Hennig 2020, ICLR, for its second moment.
    """
    if not isinstance(module, nn.Module):
        raise InvalidTypeError(
            "`module`", described(module), "a torch.nn.Module", "pass the policy"
        )
    check_given(action, "action", "pass what was sampled")
    if distribution is not None:
        check_callable(distribution, "distribution", "pass a function of the module's output")
    _check_mode(module)
    arguments = as_inputs(inputs)
    score = Score(module, distribution)
    log_prob, by_identity = capture(
        module, partial(score.checked, arguments, action), verify=verify
    )
    wanted = {name: p for name, p in module.named_parameters() if p.requires_grad}
    if not wanted:
        raise InvalidValueError(
            "`module`",
            "no parameter that requires a gradient",
            "at least one",
            "call module.requires_grad_(True)",
        )
    factors = {name: by_identity.get(id(parameter)) for name, parameter in wanted.items()}
    missing = {name: wanted[name] for name, factor in factors.items() if factor is None}
    routes = dict.fromkeys(wanted, CLOSED_FORM)
    if missing:
        values, alone, route = remaining_eligibilities(module, score, arguments, action, missing)
        _check_same(alone, log_prob)
        factors |= {name: Dense(len(action), wanted[name], values[name]) for name in missing}
        routes |= dict.fromkeys(missing, route)
    complete = {name: factor for name, factor in factors.items() if factor is not None}
    return PerSampleEligibilities(log_prob, MappingProxyType(complete), MappingProxyType(routes))


def _check_mode(module: nn.Module) -> None:
    for name, layer in module.named_modules():
        mixes = isinstance(layer, _BatchNorm) and (layer.training or layer.running_mean is None)
        if mixes:
            raise InvalidValueError(
                f"`module`, layer {name or type(layer).__name__!r}",
                "a batch norm with the statistics of the batch",
                "one with fixed statistics",
                "call module.eval(): batch statistics mix the samples, so no sample has a "
                "separate eligibility",
            )


def _check_same(alone: Tensor, together: Tensor) -> None:
    """Raise if a sample by itself has another log-probability than in its batch."""
    tolerance = torch.finfo(together.dtype).eps ** 0.5
    if not torch.allclose(alone, together, rtol=tolerance, atol=tolerance, equal_nan=True):
        raise InvalidValueError(
            "`module`",
            "a log-probability that differs between a sample alone and the same sample in its "
            "batch",
            "a module that treats samples independently and deterministically",
            "call module.eval() to switch off dropout and statistics of the batch",
        )
