"""Spaces of the probe: what a program sees there and what it may do, and what it is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.distributions import Multinomial, Normal

import eligibility as el
from eligibility.audit.interception.action_numbers import masks_of, numbers_of
from eligibility.audit.interception.observations import observations_of, shown_space
from eligibility.audit.interception.probe import known_spaces
from eligibility.audit.judgement.audited_program import AuditedProgram
from eligibility.audit.judgement.diagnosis import diagnose
from eligibility.audit.running.runner import CallableRunner
from eligibility.audit.running.survey import survey
from eligibility.spaces.counts import Counts

MIXED = spaces.Dict(
    gear=spaces.Discrete(3, start=1),
    pedals=spaces.Box(-1, 1, (2,), np.float64),
    lights=spaces.Tuple((spaces.MultiBinary(2), spaces.MultiDiscrete([2, 4], start=[5, 6]))),
)


class Spaces(gymnasium.Env[Any, Any]):
    """Only its spaces matter."""

    def __init__(self, observed: spaces.Space[Any], actions: spaces.Space[Any]) -> None:
        self.observation_space, self.action_space = observed, actions


@pytest.fixture
def environment() -> Iterator[Any]:
    def register(observed: spaces.Space[Any], actions: spaces.Space[Any]) -> str:
        gymnasium.register("Spaces-v0", lambda: Spaces(observed, actions))
        return "Spaces-v0"

    yield register
    del gymnasium.registry["Spaces-v0"]


class Agent:
    """Acts by a distribution over the outputs of a linear layer, and learns by REINFORCE."""

    def __init__(self, outputs: int, distribution: Any, act: Any = lambda action: action) -> None:
        self.net, self.distribution, self.to_environment = nn.Linear(4, outputs), distribution, act
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.log_probs: list[Tensor] = []

    def act(self, observation: Any) -> Any:
        seen = observation["seen"] if isinstance(observation, dict) else observation
        drawn = self.distribution(self.net(torch.as_tensor(seen)))
        action = drawn.sample()
        self.log_probs.append(drawn.log_prob(action).sum())
        return self.to_environment(action.numpy())

    def update(self, rewards: list[float]) -> None:
        loss = -torch.stack(self.log_probs).sum() * sum(rewards)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.log_probs = []


def test_counts_of_a_multinomial_are_read_unit_by_unit(environment: Any) -> None:
    name = environment(spaces.Box(-1, 1, (4,)), Counts(2, 2))
    report = el.audit_agent(
        lambda: Agent(2, lambda logits: Multinomial(2, logits=logits)),
        environment=name,
        discount=1.0,
    )
    assert report.verdict == "unbiased", report.text()
    assert report.rule == "1 × whole episode return (γ = 1)"
    assert report.exhaustive
    assert report.residual < 1e-8


def test_a_dict_of_an_index_and_a_number_is_enumerated_times_quadrature(environment: Any) -> None:
    actions = spaces.Dict(gear=spaces.Discrete(2), pedal=spaces.Box(-1, 1, (1,), np.float64))
    name = environment(spaces.Dict(seen=spaces.Box(-1, 1, (4,)), at=spaces.Discrete(3)), actions)

    class Both:
        def __init__(self, outputs: Tensor) -> None:
            self.gear = torch.distributions.Categorical(logits=outputs[:2])
            self.pedal = Normal(outputs[2:], 0.5)

        def sample(self) -> Tensor:
            return torch.cat([self.gear.sample()[None], self.pedal.sample()])

        def log_prob(self, drawn: Tensor) -> Tensor:
            return self.gear.log_prob(drawn[0]) + self.pedal.log_prob(drawn[1:]).sum()

    def split(drawn: Any) -> dict[str, Any]:
        return {"pedal": drawn[1:], "gear": int(drawn[0])}  # in another order than the space

    report = el.audit_agent(lambda: Agent(3, Both, split), environment=name, discount=1.0)
    assert report.verdict == "unbiased", report.text()
    assert report.exhaustive
    assert report.residual < 1e-8


def test_numbers_of_a_composite_are_in_the_order_of_its_space() -> None:
    numbers = numbers_of(MIXED)
    action = {
        "pedals": np.array([0.5, -0.5]),
        "lights": (np.array([0, 1]), np.array([6, 8])),
        "gear": 3,
    }
    assert list(action) != list(MIXED.spaces)
    assert numbers.of(action).tolist() == [2, 0.5, -0.5, 0, 1, 1, 2]
    assert numbers.sizes == (3, 0, 0, 2, 2, 2, 4)
    assert numbers.continuous.tolist() == [False, True, True, False, False, False, False]
    with pytest.raises(ValueError, match="an action of 3 numbers for Discrete"):
        numbers_of(spaces.Discrete(2)).of(np.zeros(3))


def test_masks_are_members_of_the_spaces_habits() -> None:
    for state in range(3):
        allowed = masks_of(spaces.Discrete(3), state)
        assert spaces.Discrete(3).sample(mask=allowed) in np.flatnonzero(allowed)
        assert allowed.sum() == 2
        whole = masks_of(MIXED, state)
        assert set(whole) == set(MIXED.spaces)
        assert whole["pedals"] is None
    assert masks_of(spaces.Discrete(2), 1).tolist() == [1, 1]
    assert masks_of(spaces.Discrete(2), 2).tolist() == [1, 0]
    assert masks_of(spaces.MultiBinary(2), 2).tolist() == [1, 2]
    assert masks_of(Counts(5, 3), 0).tolist() == [1, 0, 1]


def test_observations_are_members_of_their_space_and_tell_the_states_apart() -> None:
    space = shown_space(spaces.Dict(whole=MIXED, action_mask=spaces.MultiBinary(2)), np.float64)
    seen = observations_of(space, spaces.Discrete(2))
    assert all(observation in space for observation in seen)
    assert len({repr(observation) for observation in seen}) == 4


@pytest.mark.parametrize(
    ("observed", "actions", "what"),
    [
        (spaces.Text(3), spaces.Discrete(2), "observations of type Text"),
        (spaces.Discrete(2), spaces.Text(3), "actions of type Text"),
    ],
)
def test_a_space_that_cannot_be_imitated_is_named(
    environment: Any, observed: Any, actions: Any, what: str
) -> None:
    name = environment(observed, actions)
    report = el.audit_loss(lambda log_probs, returns: -log_probs @ returns, environment=name)
    assert report.verdict == "inconclusive"
    assert f"`Spaces-v0` has {what}, which the probe does not support" in report.summary


def test_an_environment_that_the_program_defines_and_makes_itself_is_the_probe() -> None:
    def program() -> None:
        class Own(gymnasium.Env[Any, Any]):
            def __init__(self) -> None:
                self.reset()  # before it has spaces: its own
                self.observation_space = spaces.Box(-1, 1, (4,))
                self.action_space = spaces.Discrete(2)

            def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
                return np.zeros(4), {}

            def step(self, action: Any) -> Any:
                raise AssertionError

        class Seen(gymnasium.Wrapper[Any, Any, Any, Any]):
            def step(self, action: Any) -> Any:
                seen.append(action)
                return self.env.step(action)

        environment, seen = Seen(Own()), list[int]()
        agent = Agent(2, lambda logits: torch.distributions.Categorical(logits=logits))
        while True:
            observation, _ = environment.reset()
            rewards, over = [], False
            while not over:
                action = agent.act(observation)
                observation, reward, *ends, _ = environment.step(action)
                rewards.append(float(reward))
                over = any(ends)
            assert len(seen) >= len(rewards)
            agent.update(rewards)

    before = vars(gymnasium.Env).get("__init_subclass__")
    observed = survey(CallableRunner(program), 60, 30, lambda what, done, expected: None)
    report = diagnose(AuditedProgram(observed, None, "own"))
    assert report.verdict == "unbiased", report.text()
    assert vars(gymnasium.Env).get("__init_subclass__") is before


def test_a_well_known_environment_has_the_spaces_that_its_arguments_ask_for() -> None:
    assert known_spaces("LunarLander-v3") == known_spaces("LunarLander-v3", {"continuous": False})
    _, acted = known_spaces("LunarLander-v3", {"continuous": True})
    assert acted.shape == (2,)
    assert known_spaces("FrozenLake-v1", {"map_name": "8x8"}) is None  # it is made, and looked at
    seen, _ = known_spaces("FrozenLake-v1", {"is_slippery": False})
    assert seen.n == 16
