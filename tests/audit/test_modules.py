"""Audits of loss modules: what `audit_loss` does for functions, with parameters of their own."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Categorical

import eligibility as el
from eligibility.errors import InvalidTypeError
from tests.audit.writing import line_of_source


class WithBaseline(nn.Module):
    """REINFORCE minus a learned constant, which its own loss trains."""

    def __init__(self) -> None:
        super().__init__()
        self.baseline = nn.Parameter(torch.tensor(0.7))

    def forward(self, log_probs: Tensor, returns: Tensor) -> Tensor:
        policy = -(log_probs * (returns - self.baseline.detach())).sum()
        return policy + (returns - self.baseline).pow(2).mean()


class FromLogits(nn.Module):
    """Scores by itself; what has a default and no known name is left alone."""

    def forward(
        self, logits: Tensor, actions: Tensor, advantages: Tensor, scale: float = 2.0
    ) -> Tensor:
        return -scale * (Categorical(logits=logits).log_prob(actions) * advantages).sum()


class MeanTimesSum(nn.Module):
    def forward(self, log_probs: Tensor, returns: Tensor) -> Tensor:
        return -log_probs.mean() * returns.sum()


class MeanOverTokens(nn.Module):
    """The loss of a language model: a padded batch, a mean over all of its tokens."""

    def forward(self, log_probs: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
        return -(log_probs * advantages[:, None] * mask).sum() / mask.sum()


def test_a_module_with_a_parameter_of_its_own_is_unbiased_and_stays_as_it_was() -> None:
    module = WithBaseline()
    before = copy.deepcopy(module.state_dict())
    report = el.audit_module(module, discount=1.0)
    assert report.verdict == "unbiased", report.text()
    assert report.program == "WithBaseline"
    assert report.parameters == 4 * 2 + 2  # of the linear policy, not of the baseline
    assert [convention.name for convention in report.conventions] == ["baseline"]
    assert module.state_dict() == before
    assert module.baseline.grad is None


def test_a_module_that_scores_by_itself_is_unbiased_up_to_its_scale() -> None:
    report = el.audit_module(FromLogits(), discount=1.0)
    assert report.verdict == "unbiased", report.text()
    assert [convention.name for convention in report.conventions] == ["constant-scale"]
    assert report.rule.startswith("2 × reward-to-go")


def test_a_wrong_module_is_named_at_the_line_of_its_forward() -> None:
    report = el.audit_module(MeanTimesSum(), discount=1.0)
    (finding,) = report.findings
    assert finding.rule == "mean-log-prob-times-sum-of-returns"
    assert (finding.file, finding.line) == (__file__, line_of_source(__file__, "log_probs.mean()"))
    assert report.exit_status == 1


def test_a_module_over_tokens_names_its_length_convention() -> None:
    report = el.audit_module(MeanOverTokens(), episodes=2, discount=1.0, max_paths=60)
    assert report.verdict == "convention", report.text()
    assert report.ok(conventions={"mean-over-time"})


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(InvalidTypeError) as error:
        el.audit_module(lambda log_probs: log_probs.sum())
    assert str(error.value) == (
        "`module`: got function, expected a torch.nn.Module; use audit_loss for a function"
    )


def test_a_forward_that_asks_for_more_is_refused() -> None:
    class Hot(nn.Module):
        def forward(self, log_probs: Tensor, temperature: float) -> Tensor:
            return log_probs.sum() / temperature

    with pytest.raises(InvalidTypeError, match="parameter `temperature` of the loss: got a name"):
        el.audit_module(Hot())
