"""E[eligibility] = 0: Williams' Theorem 1 rests on it. By enumeration of every outcome."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor
from torch.distributions import Distribution, Multinomial

import eligibility as el
from tests.rules.cases import CASES, Case


def outcomes(dist: Distribution) -> Tensor:
    """Every outcome of a distribution with a finite support, ``[outcomes, *batch, *event]``."""
    if isinstance(dist, Multinomial):
        total, categories = dist.total_count, dist.event_shape[0]
        rows = itertools.product(range(total + 1), repeat=categories)
        counts = torch.tensor([row for row in rows if sum(row) == total], dtype=torch.float64)
        lead = (len(counts), *[1] * len(dist.batch_shape), categories)
        return counts.reshape(lead).expand(-1, *dist.batch_shape, -1)
    return dist.enumerate_support(expand=True)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_expectation_is_zero(case: Case) -> None:
    parameters = case.parameters((2,), seed=8)
    dist = case.build(**parameters)
    value = outcomes(dist)
    mass = dist.log_prob(value).exp()
    torch.testing.assert_close(mass.sum(0), torch.ones(2, dtype=torch.float64))
    for name, eligibility in el.eligibility(dist, value).items():
        weight = mass.reshape(mass.shape + (1,) * (eligibility.ndim - mass.ndim))
        expectation = (weight * eligibility).sum(0)
        torch.testing.assert_close(
            expectation, torch.zeros_like(parameters[name]), rtol=0, atol=1e-12
        )
