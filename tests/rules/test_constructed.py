"""The default `wrt`: what a distribution was constructed with, or a refusal to guess."""

from __future__ import annotations

import pytest
import torch
from torch.distributions import Bernoulli, Categorical

import eligibility as el
from eligibility.errors import InvalidValueError
from eligibility.rules.registry import constructed_parameters


def test_asking_computes_nothing() -> None:
    dist = Bernoulli(probs=torch.tensor([0.2, 0.3]))
    before = set(vars(dist))
    el.eligibility(dist, torch.tensor([1.0, 0.0]), wrt=("probs", "logits"))
    assert set(vars(dist)) == before


def test_an_expanded_object_that_holds_one_parameter_knows_it() -> None:
    assert constructed_parameters(Bernoulli(logits=torch.zeros(())).expand((3,))) == ("logits",)


def test_an_object_that_cannot_tell_refuses_to_guess() -> None:
    dist = Bernoulli(probs=torch.tensor(0.5))
    assert dist.logits == 0  # computed and kept
    assert constructed_parameters(dist) == ("probs",)
    with pytest.raises(InvalidValueError) as caught:
        el.eligibility(dist.expand((2,)), torch.ones(2))
    assert str(caught.value) == (
        "`wrt`: got None, for a distribution expanded after both probs and logits had "
        "been computed, expected the one it was constructed with; pass wrt='probs' or wrt='logits'"
    )
    assert list(el.eligibility(dist.expand((2,)), torch.ones(2), wrt="probs")) == ["probs"]


def test_stale_rounding_does_not_leak_into_the_other_parameterisation() -> None:
    """torch's own logits of p = 1e-9 are those of 1.19e-7: it clamps."""
    dist = Bernoulli(probs=torch.tensor(1e-9))
    assert el.eligibility(dist, torch.tensor(0.0), wrt="logits")["logits"] == torch.tensor(-1e-9)
    certain = Categorical(logits=torch.tensor([0.0, 40.0]))
    eligibility = el.eligibility(certain, torch.tensor(1), wrt="probs")["probs"]
    torch.testing.assert_close(eligibility[1].double(), torch.tensor(-40.0).double().exp())
