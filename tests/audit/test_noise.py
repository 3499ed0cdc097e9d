"""Sampling by hand: uniform numbers below thresholds, noise under an argmax, means plus noise."""

from __future__ import annotations

import bisect
import math
import random
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Bernoulli

import eligibility as el
from eligibility.audit.choices import Choices
from eligibility.audit.noise.numbers import Noise
from eligibility.audit.noise.numpy_numbers import NoiseArray, NoiseFloat
from eligibility.audit.noise.symbol import Symbol, winning_probabilities
from eligibility.audit.noise.torch_numbers import TorchNoise

Pick = Callable[[Tensor], int]


def cumulated(probs: Tensor) -> list[float]:
    return np.cumsum(probs.detach().numpy()).tolist()


def shares(logits: Tensor) -> list[float]:
    return logits.detach().softmax(-1).tolist()


def in_a_loop(logits: Tensor) -> int:
    u = random.random()
    for action, edge in enumerate(cumulated(logits.softmax(-1))):
        if u < edge:
            return action
    return len(logits) - 1


def by_race(logits: Tensor) -> int:
    return int((logits.softmax(-1) / torch.empty_like(logits).exponential_(1)).argmax(-1))


def by_gumbel(logits: Tensor) -> int:
    gumbel = -torch.log(-torch.log(torch.rand_like(logits) + 1e-20) + 1e-20)
    return int((logits + gumbel).max(-1)[1])


PICKS: dict[str, Pick] = {
    "below": lambda z: int(torch.rand(1) < z.softmax(-1)[1]),
    "above": lambda z: int(z.softmax(-1)[0] <= torch.rand(())),
    "item": lambda z: int(torch.rand(1).item() < z.softmax(-1)[1].item()),
    "cumsum": lambda z: int((torch.rand(1) > z.softmax(-1).cumsum(-1)).sum()),
    "first": lambda z: int((z.softmax(-1).cumsum(-1) > torch.rand(1)).int().argmax()),
    "searchsorted": lambda z: int(torch.searchsorted(z.softmax(-1).cumsum(-1), torch.rand(1))),
    "race": by_race,
    "gumbel": by_gumbel,
    "gumbel-object": lambda z: int(
        (z + torch.distributions.Gumbel(0.0, 1.0).sample((2,))).argmax()
    ),
    "uniform_": lambda z: int((z[1] - z[0]) + torch.empty(()).uniform_().logit() > 0),
    "numpy": lambda z: int(np.random.rand() < z.softmax(-1)[1].item()),
    "numpy-reversed": lambda z: 0 if z.softmax(-1)[0].item() > np.random.uniform() else 1,
    "numpy-int": lambda z: int(np.random.rand() + shares(z)[1]),
    "numpy-ceil": lambda z: int(np.ceil(np.random.rand() - shares(z)[0])),
    "numpy-floor-of-an-array": lambda z: int(np.floor(np.random.rand(1) + shares(z)[1])[0]),
    "numpy-astype": lambda z: (np.random.rand(1) + shares(z)[1]).astype(int).item(),
    "math-ceil": lambda z: math.ceil(random.random() - shares(z)[0]),
    "numpy-gumbel": lambda z: int(np.argmax(z.detach().numpy() + np.random.gumbel(size=len(z)))),
    "numpy-searchsorted": lambda z: int(
        np.searchsorted(cumulated(z.softmax(-1)), np.random.default_rng(3).random())
    ),
    "numpy-state": lambda z: int(np.random.RandomState(1).rand(1)[0] < z.softmax(-1)[1].item()),
    "numpy-state-choice": lambda z: np.random.RandomState(1).choice(2, p=shares(z)),
    "numpy-multinomial": lambda z: int(np.random.multinomial(1, shares(z)).argmax()),
    "numpy-multinomial-of-a-generator": lambda z: int(
        np.random.default_rng(3).multinomial(1, shares(z)).argmax()
    ),
    "numpy-binomial": lambda z: int(np.random.binomial(1, shares(z)[1])),
    "random-of-a-generator": lambda z: int(random.Random(1).random() < shares(z)[1]),
    "choices-of-a-generator": lambda z: random.Random(1).choices([0, 1], shares(z))[0],
    "bisect": lambda z: bisect.bisect(cumulated(z.softmax(-1))[:-1], random.random()),
    "loop": in_a_loop,
}


class Agent:
    """REINFORCE with the reward-to-go; how it picks an action is what the tests exchange."""

    pick: Pick

    def __init__(self) -> None:
        self.net = nn.Linear(4, 2)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.log_probs: list[Tensor] = []

    def act(self, observation: object) -> int:
        logits = self.net(torch.as_tensor(observation))
        action = type(self).pick(logits)
        self.log_probs.append(logits.log_softmax(-1)[action])
        return action

    def update(self, rewards: list[float]) -> None:
        returns = torch.tensor(rewards).flip(0).cumsum(0).flip(0)
        self.optimizer.zero_grad()
        (-(torch.stack(self.log_probs) * returns).sum()).backward()
        self.optimizer.step()
        self.log_probs.clear()


def agent(pick: Pick) -> type[Agent]:
    return type("Sampler", (Agent,), {"pick": staticmethod(pick)})


@pytest.mark.parametrize("name", PICKS)
def test_sampling_by_hand_is_enumerated_exactly(name: str) -> None:
    report = el.audit_agent(agent(PICKS[name]), discount=1.0, max_paths=8)
    assert report.verdict == "unbiased", report.text()
    assert report.exhaustive
    assert report.paths in (3, 5)  # as with Categorical: an outcome of probability 0 is no path
    assert report.residual < report.tolerance


@pytest.mark.parametrize(
    "pick",
    [
        lambda z: int(np.random.default_rng(3).integers(100) < 100 * shares(z)[1]),
        lambda z: int(np.random.RandomState(3).randint(100) < 100 * shares(z)[1]),
        lambda z: int(random.Random(3).randrange(100) < 100 * shares(z)[1]),
    ],
)
def test_other_draws_of_a_generator_are_no_choice_of_the_likeliest_action(pick: Pick) -> None:
    report = el.audit_agent(agent(pick), discount=1.0, max_paths=8)
    assert report.verdict == "inconclusive", report.text()
    assert "a generator of" in report.summary


@pytest.mark.parametrize(
    "pick",
    [
        lambda z: int((z / 2 - torch.log(-torch.log(torch.rand(2)))).argmax()),
        lambda z: int(np.random.rand() < (z[1] - z[0]).mul(0.5).sigmoid().item()),
    ],
)
def test_another_temperature_in_acting_than_in_scoring_is_found(pick: Pick) -> None:
    report = el.audit_agent(agent(pick), discount=1.0, max_paths=8)
    assert report.verdict == "biased", report.text()
    assert report.residual > 1e3 * report.tolerance


class Gaussian(Agent):
    """A normal action; ``draw`` makes it from the mean and the standard deviation."""

    draw: Callable[[Tensor, Tensor], Tensor]

    def __init__(self) -> None:
        self.net = nn.Linear(2, 1)
        self.log_scale = nn.Parameter(torch.zeros(1))
        self.optimizer = torch.optim.SGD([*self.net.parameters(), self.log_scale], lr=0.1)
        self.log_probs: list[Tensor] = []

    def act(self, observation: object) -> np.ndarray:
        mean, scale = self.net(torch.as_tensor(observation)), self.log_scale.exp()
        action = type(self).draw(mean, scale)
        self.log_probs.append((-0.5 * ((action - mean) / scale) ** 2 - scale.log()).sum())
        return action.numpy()


DRAWS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "reparametrised": lambda m, s: (m + s * torch.randn_like(m)).detach(),
    "normal": lambda m, s: torch.normal(m.detach(), s.detach()),
    "normal_": lambda m, s: torch.empty(1).normal_().mul_(s.detach()).add_(m.detach()),
    "numpy": lambda m, s: torch.as_tensor(
        m.detach().numpy() + s.detach().numpy() * np.random.randn(1)
    ),
    "numpy-normal": lambda m, s: torch.tensor([np.random.normal(m.item(), s.item())]),
    "gauss": lambda m, s: torch.tensor([random.gauss(m.item(), s.item())]),
}


@pytest.mark.parametrize("name", DRAWS)
def test_normal_actions_by_hand_are_quadrature_nodes(name: str) -> None:
    factory = type("Drawer", (Gaussian,), {"draw": staticmethod(DRAWS[name])})
    report = el.audit_agent(
        factory, environment="MountainCarContinuous-v0", discount=1.0, max_paths=40
    )
    assert report.verdict == "unbiased", report.text()
    assert report.exhaustive


def test_a_normal_action_that_keeps_its_graph_is_biased() -> None:
    # the reparametrised action moves with the parameters, and the written-out density with it
    class Attached(Gaussian):
        draw = staticmethod(lambda m, s: m + s * torch.randn_like(m))

        def act(self, observation: object) -> np.ndarray:
            mean, scale = self.net(torch.as_tensor(observation)), self.log_scale.exp()
            action = type(self).draw(mean, scale)
            self.log_probs.append((-0.5 * ((action - mean) / scale) ** 2 - scale.log()).sum())
            return action.detach().numpy()

    report = el.audit_agent(
        Attached, environment="MountainCarContinuous-v0", discount=1.0, max_paths=40
    )
    assert report.verdict == "biased", report.text()
    assert [finding.rule for finding in report.findings] == ["action-keeps-its-graph"]


@pytest.mark.parametrize("chain", [("log", "neg", "log", "neg"), ("logit",)])
def test_the_race_is_won_as_in_a_million_draws(chain: tuple[str, ...]) -> None:
    shift = np.array([0.4, -0.3, 0.1])
    symbol: Symbol | None = Symbol(np.arange(3), normal=False)
    base = np.random.Generator(np.random.PCG64(1)).random((1_000_000, 3))
    functions = {"log": np.log, "reciprocal": np.reciprocal, "neg": np.negative}
    functions["logit"] = lambda u: np.log(u / (1 - u))
    for name in chain:
        assert symbol is not None
        symbol = symbol.then("mul", -1.0) if name == "neg" else symbol.then(name)
        base = functions[name](base)
    assert symbol is not None
    shifted = symbol.then("add", shift)
    assert shifted is not None
    probs = winning_probabilities(shifted, np.zeros(3), np.ones(3))
    drawn = np.bincount((base + shift).argmax(axis=1), minlength=3) / len(base)
    assert probs.sum() == pytest.approx(1.0, abs=1e-13)
    assert np.abs(probs - drawn).max() < 5 * 0.5 / math.sqrt(len(base))
    if len(chain) == 4:  # Gumbel: the softmax
        assert probs == pytest.approx(np.exp(shift) / np.exp(shift).sum(), abs=1e-13)


class Ledger:
    """Stands for the recorder."""

    def __init__(self, prescribed: tuple[int, ...]) -> None:
        self.choices = Choices(prescribed)
        self.facts: list[str] = []

    def drawn(self, ids: object, units: object, values: object) -> None:
        pass

    def settled(self, position: int, loc: float, scale: float, value: float) -> None:
        pass

    def own_numbers(self) -> AbstractContextManager[None]:
        return nullcontext()

    def note(self, fact: str) -> None:
        if fact:
            self.facts.append(fact)


def test_a_number_that_was_compared_stays_where_it_was_found() -> None:
    books = Ledger(prescribed=(1, 0))
    noise = Noise(books)
    number = NoiseFloat.made(noise, noise.create((), normal=False), 0.5)
    assert not number < 0.4
    assert number < 0.7  # a second choice, between 0.4 and 1
    assert number > 0.4
    assert not number > 0.7
    assert [draw.probs for draw in books.choices.draws] == [(0.4, 0.6), pytest.approx((0.5, 0.5))]


def test_a_uniform_number_that_is_used_as_one_is_noted() -> None:
    books = Ledger(prescribed=())
    noise = Noise(books)
    array = NoiseArray.made(noise, noise.create((2,), normal=False), np.array([0.25, 0.5]))
    assert float((array**2).sum()) == 0.3125
    assert books.facts
    assert all(fact.startswith("unread:") for fact in books.facts)


@pytest.mark.parametrize(("use", "filled"), [(lambda p: p.grad, 0), (nn.init.zeros_, 1)])
def test_only_what_fills_a_parameter_is_taken_for_its_first_numbers(
    use: Callable[[nn.Parameter], object], filled: int
) -> None:
    """The states of all generators are compared there, which is slow."""
    asked = []

    class Counting(Ledger):
        def own_numbers(self) -> AbstractContextManager[None]:
            asked.append(1)
            return nullcontext()

    with TorchNoise(Noise(Counting(prescribed=())), lambda: True):
        use(nn.Parameter(torch.ones(2)))
    assert len(asked) == filled


class Explorer(Agent):
    """Acts by a coin that is rounded, and scores by the policy."""

    def act(self, observation: object) -> int:
        action = int(np.ceil(np.random.rand() * 2) - 1)
        prob = self.net(torch.as_tensor(observation))[None, :1].sigmoid()
        self.log_probs.append(Bernoulli(prob).log_prob(torch.tensor(float(action))).sum())
        return action


def test_a_rounded_number_that_acts_in_the_place_of_the_policy_is_told() -> None:
    """The distribution that is scored is [1, 1], and the action is a scalar."""
    report = el.audit_agent(Explorer, discount=1.0, max_paths=8)
    assert report.verdict == "biased", report.text()
    assert [finding.rule for finding in report.faults] == ["behaviour-not-scored"]
