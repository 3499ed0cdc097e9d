"""Programs that insist on single precision are told from wrong ones; half precision is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import eligibility as el
from eligibility.audit.precision import UNIT_DOUBLE, UNIT_SINGLE, tolerance
from tests.audit.writing import audited

SINGLE = "torch.FloatTensor"  # a name that the audit does not raise


class Agent:
    """REINFORCE in single precision, policy and loss; ``bias`` is what tests break."""

    bias = 0.0

    def __init__(self) -> None:
        self.net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).type(SINGLE)
        self.optimizer = torch.optim.Adam(self.net.parameters())
        self.log_probs: list[Tensor] = []

    def act(self, observation: object) -> int:
        dist = torch.distributions.Categorical(
            logits=self.net(torch.as_tensor(observation).type(SINGLE))
        )
        action = dist.sample()
        self.log_probs.append(dist.log_prob(action))
        return int(action)

    def update(self, rewards: list[float]) -> None:
        returns = torch.tensor(rewards).type(SINGLE).flip(0).cumsum(0).flip(0)
        log_probs = torch.stack(self.log_probs)
        loss = -(log_probs * returns).sum() + self.bias * (log_probs.mean() * returns.sum())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.log_probs.clear()


def test_a_correct_program_in_single_precision_is_unbiased() -> None:
    report = el.audit_agent(Agent, discount=1.0)
    assert report.verdict == "unbiased", report.text()
    assert "single precision" in report.precision
    assert report.tolerance == tolerance(UNIT_SINGLE)
    assert UNIT_SINGLE < report.residual < report.tolerance / 10


@pytest.mark.parametrize("bias", [0.05, -0.05, 0.5])
def test_a_bias_of_a_few_percent_is_found_in_single_precision(bias: float) -> None:
    class Biased(Agent):
        pass

    Biased.bias = bias
    report = el.audit_agent(Biased, discount=1.0)
    assert report.verdict == "biased", report.text()
    assert report.residual > report.tolerance


def test_a_loss_in_single_precision_of_a_policy_in_double_is_unbiased() -> None:
    def loss(log_probs: Tensor, returns: Tensor) -> Tensor:
        return -(log_probs.type(SINGLE) * returns.type(SINGLE)).sum()

    report = el.audit_loss(loss, discount=1.0)
    assert report.verdict == "unbiased", report.text()
    assert report.tolerance == tolerance(UNIT_SINGLE)


@pytest.mark.parametrize("shorten", [Tensor.float, Tensor.half, Tensor.bfloat16])
def test_a_shorter_type_that_can_be_raised_is_raised(shorten: object) -> None:
    name = shorten.__name__

    def loss(log_probs: Tensor, returns: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return -(getattr(log_probs, name)() * returns).sum()

    report = el.audit_loss(loss, discount=1.0)
    assert report.verdict == "unbiased", report.text()
    assert report.tolerance == tolerance(UNIT_DOUBLE)


@pytest.mark.parametrize("made", ["torch.amp.GradScaler('cpu')", "torch.cpu.amp.GradScaler()"])
def test_a_gradient_that_is_scaled_for_half_precision_is_read_as_it_is(
    made: str, tmp_path: Path
) -> None:
    step = (
        "scaler.scale(loss).backward()\n    scaler.unscale_(opt)\n"
        "    scaler.step(opt)\n    scaler.update()"
    )
    changes = (("\nGAMMA", f"\nscaler = {made}\nGAMMA"), ("loss.backward()\n    opt.step()", step))
    report = audited(tmp_path, *changes)
    assert report.verdict == "unbiased", report.text()
    assert "1 × reward-to-go" in report.rule


def test_half_precision_that_cannot_be_raised_is_inconclusive() -> None:
    def loss(log_probs: Tensor, returns: Tensor) -> Tensor:
        return -(log_probs.type("torch.HalfTensor") * returns.type("torch.HalfTensor")).sum()

    report = el.audit_loss(loss, discount=1.0)
    assert report.verdict == "inconclusive"
    assert report.summary == (
        "the gradient is computed in half precision, where rounding hides every rule; run the "
        "program in float32"
    )
