"""Tokens that a program draws by noise and a maximum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from eligibility.audit.trainers.gumbel import Noise

Draw = Callable[[Tensor], Tensor]


class _Followed(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.noise = Noise()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.noise.met(func, args, result)
        return result


def _standard(z: Tensor) -> Tensor:
    return torch.distributions.Gumbel(torch.zeros_like(z), torch.ones_like(z)).sample()


DRAWS: dict[str, tuple[Draw, float]] = {
    "uniform": (lambda z: z - (-torch.rand_like(z).log()).log(), 1.0),
    "a constant beside it": (lambda z: -torch.log(-torch.log(torch.rand(2, 4) + 1e-10)) + z, 1.0),
    "a temperature": (lambda z: z / 0.7 - (-torch.rand_like(z).log()).log(), 1 / 0.7),
    "noise times it": (lambda z: z + 0.7 * -(-torch.rand_like(z).log()).log(), 1 / 0.7),
    "exponential": (lambda z: z - torch.empty_like(z).exponential_().log(), 1.0),
    "a race": (lambda z: z.softmax(-1) / torch.empty_like(z).exponential_(1), 1.0),
    "a distribution": (lambda z: z + _standard(z), 1.0),
}


@pytest.mark.parametrize("name", DRAWS)
def test_the_logits_beside_gumbel_noise_are_found(name: str) -> None:
    draw, factor = DRAWS[name]
    logits = torch.randn(2, 4, dtype=torch.float64)
    with _Followed() as followed:
        found = followed.noise.logits(draw(logits))
    assert found is not None
    assert torch.allclose(found.softmax(-1), (factor * logits).softmax(-1), atol=1e-9)


@pytest.mark.parametrize(
    "draw",
    [
        lambda z: z + torch.rand_like(z),
        lambda z: z + torch.rand_like(z).log(),
        lambda z: z + (-torch.rand_like(z).log()).log(),
        lambda z: z.softmax(-1) * torch.empty_like(z).exponential_(),
    ],
)
def test_the_maximum_beside_other_noise_is_no_draw_from_a_softmax(draw: Draw) -> None:
    with _Followed() as followed:
        assert followed.noise.logits(draw(torch.randn(2, 4, dtype=torch.float64))) is None
