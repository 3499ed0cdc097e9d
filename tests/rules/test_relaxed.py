"""The Concrete laws at what their samples round to at a low temperature: exact 0 and 1."""

from __future__ import annotations

import torch
from torch.distributions import RelaxedBernoulli, RelaxedOneHotCategorical
from torch.distributions.relaxed_categorical import ExpRelaxedCategorical

import eligibility as el

TEMPERATURE = torch.tensor(0.1)


def test_coin_that_has_rounded_to_an_end() -> None:
    dist = RelaxedBernoulli(TEMPERATURE, logits=torch.tensor([0.3, 0.3]))
    assert el.eligibility(dist, torch.tensor([0.0, 1.0]))["logits"].tolist() == [-1, 1]


def test_entry_that_has_underflowed_takes_the_whole_share() -> None:
    logits = torch.tensor([0.5, -0.25, 1.0])
    simplex = torch.tensor([0.0, 0.25, 0.75])
    expected = [-2, 1, 1]
    relaxed = RelaxedOneHotCategorical(TEMPERATURE, logits=logits)
    assert el.eligibility(relaxed, simplex)["logits"].tolist() == expected
    logarithms = ExpRelaxedCategorical(TEMPERATURE, logits=logits)
    assert el.eligibility(logarithms, simplex.log())["logits"].tolist() == expected


def test_powers_that_all_underflow_are_compared_by_logarithms() -> None:
    """w_k y_k^−τ: 1 and e^−700 of the logits against 1 and e^700 of the powers."""
    logits = torch.tensor([-700.0, 0.0], dtype=torch.float64)
    tiny = torch.exp(torch.tensor(-700.0, dtype=torch.float64))
    value = torch.stack([tiny, 1 - tiny])
    dist = RelaxedOneHotCategorical(torch.tensor(1.0, dtype=torch.float64), logits=logits)
    eligibility = el.eligibility(dist, value)["logits"]
    torch.testing.assert_close(eligibility, torch.zeros(2, dtype=torch.float64), rtol=0, atol=1e-12)
