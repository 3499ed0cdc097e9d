"""Networks of the user's own: what they get, what they must return, saving and loading."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from eligibility.errors import EligibilityError
from eligibility.train.learner import Reinforce

HERE = "tests.train.environments:"


def small(outputs: int) -> nn.Module:
    """For four numbers."""
    return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, outputs))


class Tied(nn.Module):
    """A weight under two names."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.head = nn.Linear(4, outputs)

    def forward(self, seen: Tensor) -> Tensor:
        """Twice the same weights."""
        return self.head(self.second(self.first(seen).tanh()).tanh())


class Looks(nn.Module):
    """For the Dict observations of the environment with pictures."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.mood, self.head = nn.Embedding(2, 3), nn.Linear(3 + 8, outputs)

    def forward(self, seen: dict[str, Tensor]) -> Tensor:
        """The brightness of each column, and the mood."""
        columns = seen["picture"].mean((1, 3))
        return self.head(torch.cat([self.mood(seen["mood"]), columns], -1))


def test_a_function_a_class_and_a_module_are_taken() -> None:
    for network in (small, Tied, small(2)):
        model = Reinforce("CartPole-v1", network=network).learn(total_steps=3000)
        assert model.progress.updates > 0
        assert model.predict(np.zeros(4, np.float32)) in (0, 1)


def test_it_learns() -> None:
    model = Reinforce("CartPole-v1", network=small, learning_rate=0.02, seed=1)
    model.learn(total_steps=60_000, callback=lambda progress: progress.mean_return < 100)
    assert model.progress.mean_return >= 100


def test_observations_have_the_form_of_their_space() -> None:
    model = Reinforce(
        HERE + "Pictures-v0", network=Looks, steps=20_000, stop_at=0.95, learning_rate=0.03
    ).learn()
    assert model.progress.solved


def test_constants_of_the_policy_are_kept_beside_it() -> None:
    model = Reinforce(HERE + "Target-v0", network=lambda outputs: nn.Linear(2, outputs))
    assert model.network.constants.shape == (2,)
    model.learn(total_steps=500)
    assert (model.network.constants != 0).all()


def test_the_same_seed_gives_the_same_first_weights_whatever_torchs_generator() -> None:
    models = []
    for disturbance in (0, 1):
        torch.manual_seed(disturbance)
        state = torch.get_rng_state()
        models.append(Reinforce("CartPole-v1", network=small, seed=3))
        assert torch.equal(torch.get_rng_state(), state)
    first, second = (list(model.network.parameters()) for model in models)
    assert all(map(torch.equal, first, second))


@pytest.mark.parametrize("network", [small, Tied])
def test_a_resumed_run_is_the_run_that_never_stopped(tmp_path: Path, network: Any) -> None:
    options = {"network": network, "normalize_observations": True}
    whole = Reinforce("CartPole-v1", **options).learn(total_steps=8000)
    part = Reinforce("CartPole-v1", **options).learn(total_steps=3000)
    resumed = Reinforce.load(part.save(tmp_path / "part"), network=network)
    assert resumed.learn(total_steps=8000).save(tmp_path / "a").read_bytes() == (
        whole.save(tmp_path / "b").read_bytes()
    )


REMEDY = "; see the docstring of eligibility.train.user_network.UserNetwork"


@pytest.mark.parametrize(
    ("network", "text"),
    [
        (3, "`network`: got int, expected a torch.nn.Module, or a function that builds one from "
        "the number of outputs" + REMEDY),
        (lambda outputs: outputs, "what `network` returned: got int, expected a torch.nn.Module"
         + REMEDY),
        (nn.Linear(4, 3), "the network's outputs for two observations: got shape [2, 3], expected "
         "[2, 2]" + REMEDY),
        (nn.Linear(3, 2), "the network: got RuntimeError: mat1 and mat2 shapes cannot be "
         "multiplied (2x4 and 3x2), expected no exception for two observations" + REMEDY),
        (nn.LSTM(4, 2), "the network's outputs: got tuple, expected a float32 tensor" + REMEDY),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(network: Any, text: str) -> None:
    with pytest.raises(EligibilityError, match=f"^{re.escape(text)}$"):
        Reinforce("CartPole-v1", network=network)


def test_options_of_the_default_network_are_refused_beside_it() -> None:
    text = (
        "`hidden_sizes`: got (8,), expected no value when you pass your own network; omit it, "
        "or build it into the network"
    )
    with pytest.raises(EligibilityError, match=f"^{re.escape(text)}$"):
        Reinforce("CartPole-v1", network=small, hidden_sizes=(8,))


def test_a_checkpoint_needs_the_network_that_it_was_made_with(tmp_path: Path) -> None:
    own = Reinforce("CartPole-v1", network=small).save(tmp_path / "own")
    usual = Reinforce("CartPole-v1").save(tmp_path / "usual")
    text = (
        "`network`: got none, expected the module or function the model was created with: "
        "`load(…, network=…)`; a checkpoint holds weights, not code"
    )
    with pytest.raises(EligibilityError, match=f"^{re.escape(text)}$"):
        Reinforce.load(own)
    text = (
        "`network`: got a network for a model that was created without one, expected none; omit it"
    )
    with pytest.raises(EligibilityError, match=f"^{re.escape(text)}$"):
        Reinforce.load(usual, network=small)
    text = "^`network`: got a network other than the checkpoint's .*; pass the same module or"
    with pytest.raises(EligibilityError, match=text):
        Reinforce.load(own, network=Tied)
