"""What a verdict may say: nothing wrong of what is right on average, or of what is not known."""

from __future__ import annotations

import pytest
from torch import Tensor

import eligibility as el


def test_what_is_exact_in_expectation_is_never_biased() -> None:
    def every_return_on_every_action(log_probs: Tensor, rewards: Tensor) -> Tensor:
        return -log_probs.sum() * rewards.sum()  # of two episodes: their products have the mean 0

    report = el.audit_loss(every_return_on_every_action, episodes=2, discount=1.0, max_paths=60)
    assert (report.verdict, report.exit_status) == ("unbiased", 0), report.text()
    assert report.residual < report.tolerance
    assert [(f.rule, f.severity) for f in report.findings] == [("broadcast", "warning")]
    assert "noisier than it need be" in report.summary


def test_what_no_rule_explains_is_no_fault() -> None:
    def of_a_utility(log_probs: Tensor, returns: Tensor) -> Tensor:
        return -(log_probs * returns.exp()).sum()

    report = el.audit_loss(of_a_utility, discount=1.0, max_paths=60)
    assert (report.verdict, report.exit_status) == ("unexplained", 3), report.text()
    assert not report.faults
    assert not report.ok()
    assert report.residual > report.tolerance


@pytest.mark.parametrize("epsilon", [1e-8, 10**-2, 0.7])
def test_what_is_added_to_a_deviation_is_found_whatever_it_is(epsilon: float) -> None:
    def over_its_deviation(log_probs: Tensor, returns: Tensor) -> Tensor:
        centred = returns - returns.mean()
        return -(log_probs * centred / (centred.std(correction=0) + epsilon)).sum()

    report = el.audit_loss(over_its_deviation, episodes=2, discount=1.0, max_paths=60)
    assert report.verdict == "convention", report.text()
    assert report.conventions[0].name == "whitened"
