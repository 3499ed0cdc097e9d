"""Audits of parts of programs, in this process."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch
from torch import nn
from torch.distributions import Categorical

import eligibility as el
from eligibility.errors import InvalidTypeError


class Agent:
    """REINFORCE with the reward-to-go and γ^t; ``sign`` and ``update`` are what tests break."""

    sign = -1.0

    def __init__(self) -> None:
        self.net = nn.Linear(4, 2)
        self.optimizer = torch.optim.Adam(self.net.parameters())
        self.log_probs: list[torch.Tensor] = []

    def act(self, observation: np.ndarray) -> int:
        dist = Categorical(logits=self.net(torch.as_tensor(observation)))
        action = dist.sample()
        self.log_probs.append(dist.log_prob(action))
        return int(action)

    def update(self, rewards: list[float]) -> None:
        running, returns = 0.0, []
        for reward in reversed(rewards):
            running = reward + 0.9 * running
            returns.insert(0, running)
        weights = torch.tensor(returns) * 0.9 ** torch.arange(len(returns))
        loss = self.sign * (torch.stack(self.log_probs) * weights).sum()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.log_probs = []


class Climber(Agent):
    sign = 1.0


def test_a_correct_agent_is_unbiased() -> None:
    assert el.audit_agent(Agent, discount=0.9).ok()


def test_an_agent_with_the_wrong_sign_is_named() -> None:
    report = el.audit_agent(Climber, discount=0.9)
    assert report.verdict == "wrong-sign"
    assert [finding.rule for finding in report.findings] == ["wrong-sign"]
    assert report.findings[0].file == __file__


def test_an_agent_without_a_way_to_get_rewards_is_refused() -> None:
    class Deaf(Agent):
        def update(self) -> None:
            pass

    with pytest.raises(InvalidTypeError) as error:
        el.audit_agent(Deaf)
    assert str(error.value) == (
        "the agent (Deaf): got neither a list `rewards` nor a parameter `rewards` of `update`, "
        "expected one of them; give `update` a parameter `rewards` that takes the list of the "
        "batch's rewards"
    )


def test_a_baseline_within_the_batch_is_a_convention_with_a_size() -> None:
    def centred(log_probs: torch.Tensor, returns: torch.Tensor) -> torch.Tensor:
        return -(log_probs * (returns - returns.mean())).sum()

    report = el.audit_loss(centred, discount=1.0)
    assert report.verdict == "convention"
    assert not report.ok()
    assert report.ok(conventions={"centred"})
    (convention,) = [c for c in report.conventions if c.name == "centred"]
    assert convention.bias is not None
    assert convention.bias > 0.01


def test_a_loss_over_tokens_is_audited_with_its_mask() -> None:
    def loss(log_probs: torch.Tensor, advantages: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return -(log_probs * advantages[:, None] * mask).sum()

    report = el.audit_loss(loss, episodes=2, discount=1.0, max_paths=60)
    assert report.verdict == "unbiased", report.text()


def test_an_unknown_parameter_of_a_loss_is_refused() -> None:
    with pytest.raises(InvalidTypeError, match="parameter `temperature` of the loss: got a name"):
        el.audit_loss(lambda log_probs, temperature: log_probs.sum() * temperature)


def test_a_function_that_returns_no_loss_is_told() -> None:
    report = el.audit_loss(lambda log_probs, returns: None)  # type: ignore[arg-type,return-value]
    assert report.verdict == "inconclusive"
    assert "the result of `function`: got NoneType, expected a tensor" in report.summary


def test_interception_leaves_no_trace_even_after_an_exception() -> None:
    before = (
        Categorical.sample,
        Categorical.__init__,
        torch.multinomial,
        torch.float32,
        torch.get_default_dtype(),
        np.random.choice,
        np.float32,
        gymnasium.make,
        torch.Tensor.backward,
        torch.nn.utils.clip_grad_norm_,
        torch.optim.Optimizer.__init__,
    )
    state = torch.get_rng_state()

    class Broken(Agent):
        def update(self, rewards: list[float]) -> None:
            raise RuntimeError("broken")

    report = el.audit_agent(Broken)
    assert report.verdict == "inconclusive"
    assert "broken" in report.summary
    assert before == (
        Categorical.sample,
        Categorical.__init__,
        torch.multinomial,
        torch.float32,
        torch.get_default_dtype(),
        np.random.choice,
        np.float32,
        gymnasium.make,
        torch.Tensor.backward,
        torch.nn.utils.clip_grad_norm_,
        torch.optim.Optimizer.__init__,
    )
    assert torch.equal(state, torch.get_rng_state())
