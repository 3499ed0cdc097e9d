"""The project's own trainer under audit: every action space, every baseline, every convention."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import eligibility as el
from eligibility.audit.case import Case
from eligibility.audit.diagnosis import diagnose
from eligibility.audit.matching import Constants
from eligibility.audit.report import AuditReport
from eligibility.audit.runner import CallableRunner
from eligibility.audit.survey import survey
from eligibility.train.spaces import Counts

DISCOUNT = 0.9
SPACES: dict[str, spaces.Space[Any]] = {
    "Discrete": spaces.Discrete(2, start=1),
    "MultiDiscrete": spaces.MultiDiscrete([2, 3]),
    "MultiBinary": spaces.MultiBinary(2),
    "Box": spaces.Box(-1.0, 1.0, (1,), np.float32),
    "Counts": Counts(2, 2),
    "Tuple": spaces.Tuple((spaces.Discrete(2), spaces.MultiBinary(1))),
}


class Nameless(gymnasium.Env[Any, Any]):
    """Only its spaces matter: the audit puts the probe in its place."""

    def __init__(self, actions: str) -> None:
        self.observation_space = spaces.Box(-1, 1, (2,), np.float32)
        self.action_space = SPACES[actions]


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    for name in SPACES:
        gymnasium.register(f"Audited{name}-v0", Nameless, kwargs={"actions": name})
    yield
    for name in SPACES:
        del gymnasium.registry[f"Audited{name}-v0"]


def audit(actions: str = "Discrete", max_paths: int = 40, **options: Any) -> AuditReport:
    """The audit of a first update, on the largest probe with so many paths."""

    def program() -> None:
        settings = {"hidden_sizes": (4,), "discount": DISCOUNT, "normalize": False} | options
        el.Reinforce(f"Audited{actions}-v0", **settings).learn(total_steps=10_000)

    observed = survey(CallableRunner(program), max_paths, 30, lambda what, done, expected: None)
    constants = Constants(discounts=(DISCOUNT,), decays=(0.8,))
    return diagnose(Case(observed, None, "el.Reinforce", constants))


def check(report: AuditReport, *conventions: str) -> None:
    assert report.verdict == "convention", report.text()
    assert not report.findings, report.text()
    assert report.exhaustive
    assert report.probability == pytest.approx(1.0, abs=1e-9)
    assert {c.name for c in report.conventions} == {"mean-over-time", *conventions}


@pytest.mark.parametrize("actions", SPACES)
def test_every_action_space_is_the_policy_gradient(actions: str) -> None:
    report = audit(actions, environments=1, baseline="none", discount_updates=True)
    if actions == "Counts":  # all of its episodes are of two steps: the mean is half the sum
        assert report.verdict == "unbiased", report.text()
        assert report.rule == "0.5 × reward-to-go (γ = 0.9), times γ^t"
        return
    check(report)
    assert report.rule.startswith("1 × reward-to-go (γ = 0.9), times γ^t, mean over time")


@pytest.mark.parametrize(
    ("baseline", "names"),
    [
        ("none", ()),
        ("moving-average", ()),  # the first batch is compared with 0
        ("state-value", ()),
        ("leave-one-out", ("leave-one-out",)),
        ("time-dependent-leave-one-out", ("leave-one-out",)),
    ],
)
def test_every_baseline_is_named_and_has_no_bias_of_its_own(
    baseline: str, names: tuple[str, ...]
) -> None:
    report = audit(environments=2, baseline=baseline)
    check(report, "gamma-t-dropped", *names)
    biases = {c.name: c.bias for c in report.conventions}
    assert all(biases[name] == 0.0 for name in names), biases


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"normalize": True}, {"scaled", "gamma-t-dropped"}),
        ({"normalize": True, "discount_updates": True}, {"scaled"}),
        ({"entropy_coef": 5.0}, {"entropy-bonus", "gamma-t-dropped"}),
        ({"credit": "whole-return"}, {"whole-episode-return"}),
    ],
)
def test_every_option_is_a_named_convention(options: dict[str, Any], names: set[str]) -> None:
    check(audit(environments=2, baseline="none", **options), *names)


def test_the_default_configuration_is_explained_to_rounding() -> None:
    report = audit(environments=2, normalize=True)
    check(report, "gamma-t-dropped", "leave-one-out", "scaled")
    assert report.rule == "1 × reward-to-go (γ = 0.9), leave one out, scaled, mean over time"
