"""One recipe for each distribution with rules: how to draw its parameters, and how to build it.

The contract tests loop over them; a rule without a case fails `test_every_rule_has_a_case`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributions import (
    Bernoulli,
    Binomial,
    Categorical,
    Distribution,
    Multinomial,
    OneHotCategorical,
)

Draw = Callable[[tuple[int, ...], torch.Generator], Tensor]


@dataclass(frozen=True)
class Case:
    """How to build one parameterisation of one distribution.

    Attributes:
        distribution: The class, which `build` returns an instance of.
        draws: Parameter -> function of (batch shape, generator) that draws it in float64.
        build: The constructor.
    """

    distribution: type[Distribution]
    draws: Mapping[str, Draw]
    build: Callable[..., Distribution]

    @property
    def name(self) -> str:
        return f"{self.distribution.__name__}({', '.join(self.draws)})"

    def parameters(self, batch_shape: tuple[int, ...], seed: int) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        return {name: draw(batch_shape, generator) for name, draw in self.draws.items()}


def uniform(low: float, high: float, *event_shape: int) -> Draw:
    """A draw of entries uniform in [low, high)."""

    def draw(batch_shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        shape = batch_shape + event_shape
        unit = torch.rand(shape, generator=generator, dtype=torch.float64)
        return low + (high - low) * unit

    return draw


def simplex(categories: int) -> Draw:
    """A draw of strictly positive probabilities that sum to 1."""

    def draw(batch_shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        weights = uniform(0.1, 1.0, categories)(batch_shape, generator)
        return weights / weights.sum(-1, keepdim=True)

    return draw


CASES = [
    Case(Bernoulli, {"probs": uniform(0.05, 0.95)}, Bernoulli),
    Case(Bernoulli, {"logits": uniform(-3, 3)}, Bernoulli),
    Case(Binomial, {"probs": uniform(0.05, 0.95)}, lambda probs: Binomial(4, probs=probs)),
    Case(Binomial, {"logits": uniform(-3, 3)}, lambda logits: Binomial(4, logits=logits)),
    Case(Categorical, {"probs": simplex(4)}, Categorical),
    Case(Categorical, {"logits": uniform(-2, 2, 4)}, Categorical),
    Case(OneHotCategorical, {"probs": simplex(4)}, OneHotCategorical),
    Case(OneHotCategorical, {"logits": uniform(-2, 2, 4)}, OneHotCategorical),
    Case(Multinomial, {"probs": simplex(3)}, lambda probs: Multinomial(5, probs=probs)),
    Case(Multinomial, {"logits": uniform(-2, 2, 3)}, lambda logits: Multinomial(5, logits=logits)),
]
