"""Points of the simplex: Dirichlet and LogisticNormal."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.distributions import Dirichlet, LogisticNormal

from eligibility.rules.location_scale import normal_loc, normal_scale
from eligibility.rules.multinomial import sum_of_others
from eligibility.rules.registry import register_eligibility
from eligibility.rules.unit_interval import log_less_mean

_LOGISTIC_NORMAL = {"x": "value", "μ": "loc", "σ": "scale"}
_IN_STICKS = "a Gaussian unit of Williams 1992, eq. (12), in stick-breaking coordinates"
_logistic_normal = partial(
    register_eligibility, LogisticNormal, reference=_IN_STICKS, symbols=_LOGISTIC_NORMAL
)


@register_eligibility(
    Dirichlet,
    "concentration",
    name="Dirichlet, concentration",
    equation="ln y_k − ψ(α_k) + ψ(Σα)",
    reference="exponential family: ln y − E[ln y]",
    symbols={"y": "value", "α": "concentration"},
    terms=lambda value, concentration: {
        "ln y_k": value.log(),
        "−ψ(α_k)": -torch.digamma(concentration),
        "ψ(Σα)": torch.digamma(concentration.sum(-1, keepdim=True)),
    },
)
def dirichlet_concentration(value: Tensor, concentration: Tensor) -> Tensor:
    """``ln y_k − ψ(α_k) + ψ(Σα)``, each entry as a beta with the others added up."""
    return log_less_mean(value, concentration, sum_of_others(concentration))


@_logistic_normal(
    "loc",
    name="logistic-normal, mean",
    equation="(x − μ)/σ², x_k = ln((K − k) y_k/Σ_{j>k} y_j), k < K",
)
def logistic_normal_loc(value: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
    """``(x − μ)/σ²`` in the coordinates x of torch's stick-breaking transform."""
    return normal_loc(unbreak_stick(value), loc, scale)


@_logistic_normal(
    "scale",
    name="logistic-normal, standard deviation",
    equation="((x − μ)² − σ²)/σ³, x_k = ln((K − k) y_k/Σ_{j>k} y_j), k < K",
)
def logistic_normal_scale(value: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
    """``((x − μ)² − σ²)/σ³`` in the coordinates x of torch's stick-breaking transform."""
    return normal_scale(unbreak_stick(value), loc, scale)


def unbreak_stick(value: Tensor) -> Tensor:
    """``x_k = ln((K − k) y_k/Σ_{j>k} y_j)``, ``[*, K]`` to ``[*, K − 1]``.

    What remains of the stick is summed from its far end, never subtracted from 1.
    """
    remaining = value.flip(-1).cumsum(-1).flip(-1)[..., 1:]
    pieces = torch.arange(value.shape[-1] - 1, 0, -1, dtype=value.dtype, device=value.device)
    return (value[..., :-1] / remaining * pieces).log()
