"""One generic language: three tokens, answers of at most three of them, nothing symmetric."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor


@dataclass(frozen=True)
class Language:
    """Logits ``[7, 3]`` of four policies, and one reward for each of the 15 answers."""

    policy: Tensor
    behaviour: Tensor
    reference: Tensor
    rewards: Tensor


@pytest.fixture(scope="session")
def language() -> Language:
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    policy = normal(7, 3)
    behaviour, reference = policy + 0.7 * normal(7, 3), policy + 0.7 * normal(7, 3)
    return Language(policy, behaviour, reference, normal(15))
