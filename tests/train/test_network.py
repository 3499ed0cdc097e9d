"""The network, and the faster way to call it, which must give the same."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from eligibility.train.network import ArrayForward, Network
from eligibility.train.observations import observations_for
from eligibility.train.policies import policy_for

BOX = spaces.Box(-1, 1, (3,))


def network(
    observation: spaces.Space,
    action: spaces.Space,
    sizes: tuple[int, ...],
    activation: str = "tanh",
) -> Network:
    """A network whose head is not small, so that differences would show."""
    generator = torch.Generator().manual_seed(0)
    made = Network(
        observations_for(observation), sizes, policy_for(action), generator, activation=activation
    )
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_(generator=generator)
    return made


@pytest.mark.parametrize("sizes", [(), (16,), (16, 8)])
@pytest.mark.parametrize("action", [spaces.Discrete(3), spaces.Box(-1, 1, (2,))], ids=str)
@pytest.mark.parametrize(
    "observation", [BOX, spaces.Discrete(5, start=2), spaces.Box(-1, 1, (3,), np.int8)], ids=str
)
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_the_array_forward_is_the_network(
    observation: spaces.Space, action: spaces.Space, sizes: tuple[int, ...], activation: str
) -> None:
    made = network(observation, action, sizes, activation)
    observation.seed(0)
    batch = np.stack([observation.sample() for _ in range(20)])
    seen = torch.from_numpy(made.observations.keep(batch))
    exact = made.double().layers(made.observations.encode(seen).double()).detach()
    if made.constants is not None:
        exact = torch.cat([exact, made.constants.detach().expand(20, -1)], -1)
    made.float()
    plain_error = (made(seen).detach() - exact).abs().max()
    for _ in range(2):  # the second call reuses the buffers
        got = ArrayForward(made, 20)(seen)
        assert (got - exact).abs().max() <= 4 * plain_error + torch.finfo(torch.float32).eps


def test_the_array_forward_does_not_share_the_weights() -> None:
    made = network(BOX, spaces.Discrete(3), (16,))
    forward, seen = ArrayForward(made, 20), torch.ones(20, 3)
    before = forward(seen).clone()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.zero_()
    assert torch.equal(forward(seen), before)


def test_it_is_used_for_small_layers_of_the_default_network_only() -> None:
    small = network(BOX, spaces.Discrete(3), (64, 64))
    assert ArrayForward.pays_off(small, 64)
    assert not ArrayForward.pays_off(small, 65)
    assert not ArrayForward.pays_off(nn.Linear(3, 3), 1)


def test_the_first_policy_is_close_to_uniform_and_drawn_from_the_generator_alone() -> None:
    state = torch.get_rng_state()
    first, second = (
        Network(
            observations_for(BOX),
            (64, 64),
            policy_for(spaces.Discrete(3)),
            torch.Generator().manual_seed(5),
        )
        for _ in range(2)
    )
    assert torch.equal(torch.get_rng_state(), state)
    assert all(map(torch.equal, first.parameters(), second.parameters()))
    assert (first(torch.ones(1, 3)).softmax(-1) - 1 / 3).abs().max() < 0.02
