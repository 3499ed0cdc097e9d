"""Angles: VonMises."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.distributions import VonMises

from eligibility.rules.registry import register_eligibility
from eligibility.rules.special import bessel_ratio, bessel_ratio_complement

_REFERENCE = "exponential family: cos(y − μ) − E[cos(y − μ)]"
_SYMBOLS = {"y": "value", "μ": "loc", "κ": "concentration"}


_von_mises = partial(register_eligibility, VonMises, reference=_REFERENCE, symbols=_SYMBOLS)


@_von_mises("loc", name="von Mises, mean angle", equation="κ sin(y − μ)")
def von_mises_loc(value: Tensor, loc: Tensor, concentration: Tensor) -> Tensor:
    """``κ sin(y − μ)``."""
    return concentration * torch.sin(value - loc)


@_von_mises(
    "concentration",
    name="von Mises, concentration",
    equation="cos(y − μ) − I₁(κ)/I₀(κ)",
    terms=lambda value, loc, concentration: {
        "cos(y − μ)": torch.cos(value - loc),
        "−I₁(κ)/I₀(κ)": -bessel_ratio(concentration),
    },
)
def von_mises_concentration(value: Tensor, loc: Tensor, concentration: Tensor) -> Tensor:
    """``cos(y − μ) − I₁/I₀``; for κ > 1 as ``(1 − I₁/I₀) − 2 sin²((y − μ)/2)``.

    Example:
        >>> von_mises_concentration(torch.tensor(0.0), torch.tensor(0.0), torch.tensor(2.0))
        tensor(0.3022)
    """
    sine = torch.sin((value - loc) / 2)
    narrow = bessel_ratio_complement(concentration) - 2 * sine * sine
    wide = torch.cos(value - loc) - bessel_ratio(concentration)
    return torch.where(concentration > 1, narrow, wide)
