"""The project's own trainer under audit: every action space, baseline, credit and convention."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from torch import Tensor

import eligibility as el
from eligibility.audit.judgement.audited_program import AuditedProgram
from eligibility.audit.judgement.constants import Constants
from eligibility.audit.judgement.diagnosis import diagnose
from eligibility.audit.reporting.report import AuditReport
from eligibility.audit.running.runner import CallableRunner
from eligibility.audit.running.survey import Survey, survey
from eligibility.audit.trace import Trace
from eligibility.spaces.counts import Counts

DISCOUNT = 0.9
# Without these, what is computed is customary and biased.
UNBIASED = {"average": "episodes", "discount_updates": True}
WHOLE = {"average": "episodes", "credit": "whole-return"}
LINE = spaces.Box(-1.0, 1.0, (1,), np.float32)
ACTIONS: dict[str, spaces.Space[Any]] = {
    "Discrete": spaces.Discrete(2, start=1),
    "MultiDiscrete": spaces.MultiDiscrete([2, 3]),
    "MultiBinary": spaces.MultiBinary(2),
    "Box": LINE,
    "Squashed": LINE,
    "Counts": Counts(3, 2),
    "Tuple": spaces.Tuple((spaces.Discrete(2), spaces.MultiBinary(1))),
    "TupleBox": spaces.Tuple((spaces.Discrete(2), LINE)),
    "DictBox": spaces.Dict(gear=spaces.Discrete(2), pedal=LINE),
    "SquashedDict": spaces.Dict(gear=spaces.Discrete(2), pedal=LINE),
}
MASKS: dict[str, spaces.Space[Any]] = {
    "info": spaces.Discrete(3),
    "method": spaces.Discrete(3),
    "observation": spaces.Discrete(3),
    "bins": Counts(2, 3),
    "components": spaces.MultiDiscrete([2, 3]),
    "bits": spaces.MultiBinary(2),
    "parts": spaces.Dict(gear=spaces.Discrete(3), pedal=LINE),
}
SEEN = spaces.Box(-1, 1, (2,), np.float32)


class Chance(gymnasium.Env[Any, Any]):
    """Up to three steps of chance. Under audit only its spaces matter, and whether it has masks."""

    def __init__(self, name: str) -> None:
        self.action_space = {**ACTIONS, **MASKS}[name]
        self.observation_space: spaces.Space[Any] = SEEN
        self._info = {"action_mask": np.ones(3)} if name in MASKS and name != "method" else {}
        if name == "method":
            self.action_masks = lambda: np.ones(3)
        if name == "observation":
            self._info = {}
            mask = spaces.MultiBinary(3)
            self.observation_space = spaces.Dict(position=SEEN, action_mask=mask)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self._time = 0
        return self.observation_space.sample(), dict(self._info)

    def step(self, action: Any) -> Any:
        self._time += 1
        reward = float(np.sum(action) + self.np_random.normal())
        ended = bool(self.np_random.random() < 0.3)
        return self.observation_space.sample(), reward, ended, self._time == 3, dict(self._info)


@pytest.fixture(scope="module", autouse=True)
def _registered() -> Iterator[None]:
    names = [*ACTIONS, *MASKS]
    for name in names:
        gymnasium.register(f"Chance{name}-v0", Chance, kwargs={"name": name})
    yield
    for name in names:
        del gymnasium.registry[f"Chance{name}-v0"]


def observe(actions: str, memory: dict[str, Tensor] | None = None, **options: Any) -> Survey:
    """An update after what is remembered, on a probe with at most 40 paths; 24 of two choices."""
    settings = {"hidden_sizes": (), "discount": DISCOUNT, "normalize": False} | options

    def program() -> None:
        model = el.Reinforce(f"Chance{actions}-v0", **settings)
        if memory is not None:
            model.gradient.load_state_dict(memory)
        model.learn(total_steps=10_000)

    return survey(
        CallableRunner(program),
        24 if actions == "Discrete" else 40,
        30,
        lambda what, done, expected: None,
    )


def report_of(observed: Survey) -> AuditReport:
    constants = Constants(discounts=(DISCOUNT,), decays=(0.0, 1.0, 0.8))
    return diagnose(AuditedProgram(observed, None, "el.Reinforce", constants))


def audit(actions: str = "Discrete", **options: Any) -> AuditReport:
    return report_of(observe(actions, **options))


def experience(**options: Any) -> dict[str, Tensor]:
    """What baselines remember after some rollouts, in double precision as the audit runs."""
    settings = {"hidden_sizes": (), "discount": DISCOUNT, "environments": 32} | options
    model = el.Reinforce("ChanceDiscrete-v0", **settings).learn(total_steps=300)
    memory = model.gradient.state_dict()
    assert any(bool(tensor.any()) for tensor in memory.values())
    return {name: tensor.double() for name, tensor in memory.items()}


def check_exhaustive(report: AuditReport) -> None:
    assert not report.findings, report.text()
    assert report.exhaustive, report.text()
    assert report.probability == pytest.approx(1.0, abs=1e-9)


def check_unbiased(report: AuditReport) -> None:
    assert report.verdict == "unbiased", report.text()
    assert report.residual < 1e-8
    check_exhaustive(report)


@pytest.mark.parametrize("actions", ACTIONS)
def test_every_action_space_is_the_policy_gradient(actions: str) -> None:
    squashed = actions.startswith("Squashed")
    options = UNBIASED | {"environments": 1, "baseline": "none", "squash_actions": squashed}
    report = audit(actions, hidden_sizes=(3,) if actions == "Box" else (), **options)
    check_unbiased(report)
    assert report.rule == "1 × reward-to-go (γ = 0.9), times γ^t"


def test_a_recurrent_policy_follows_the_gradient_through_whole_episodes() -> None:
    options = UNBIASED | {"environments": 1, "baseline": "none"}
    report = audit(recurrent="gru", hidden_sizes=(3,), **options)
    check_unbiased(report)
    assert report.rule == "1 × reward-to-go (γ = 0.9), times γ^t"


@pytest.mark.parametrize("where", MASKS)
def test_masks_of_every_kind_and_from_everywhere_are_in_the_gradient(where: str) -> None:
    observed = observe(where, environments=1, baseline="none", **UNBIASED)
    report = report_of(observed)
    check_unbiased(report)
    assert report.rule == "1 × reward-to-go (γ = 0.9), times γ^t"
    steps = [(t.draws, step.groups[-1]) for t in observed.traces for step in t.steps]
    drawn = [draws[made] for draws, group in steps for made in group]
    possible = [sum(prob > 0 for prob in draw.probs) for draw in drawn if draw.loc is None]
    forced = len({len(group) for _, group in steps}) > 1  # a bit that is not drawn
    assert forced if where == "bits" else max(possible) == 2  # of three


@pytest.mark.parametrize(
    "options",
    [
        {"baseline": "none", **UNBIASED},
        {"baseline": "none", **WHOLE},
        {"baseline": "moving-average", **UNBIASED},
        {"baseline": "leave-one-out", **UNBIASED},
        {"baseline": "time-dependent-leave-one-out", **UNBIASED},
        {"baseline": "state-value", **UNBIASED},
        {"baseline": "per-weight", **UNBIASED},
        {"baseline": "per-weight", **WHOLE},
        {"baseline": "moving-average+per-weight", **UNBIASED},
        {"baseline": "state-value+per-weight", **UNBIASED},
    ],
    ids=lambda options: f"{options['baseline']}, {options.get('credit', 'reward-to-go')}",
)
def test_every_baseline_is_unbiased_with_what_it_remembers(options: dict[str, Any]) -> None:
    remembers = not options["baseline"].endswith(("none", "leave-one-out"))
    memory = experience(**options) if remembers else None
    check_unbiased(audit(environments=1 if remembers else 2, memory=memory, **options))


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, {"mean-over-time", "gamma-t-dropped"}),
        ({"discount_updates": True}, {"mean-over-time"}),
        ({"normalize": True}, {"mean-over-time", "scaled", "gamma-t-dropped"}),
        ({"normalize": True, **UNBIASED}, {"scaled", "constant-scale"}),
        ({"entropy_coef": 0.01, **UNBIASED}, {"entropy-bonus", "constant-scale"}),
        ({"credit": "whole-return"}, {"mean-over-time", "whole-episode-return"}),
        (
            {"baseline": "leave-one-out", "normalize": True},
            {"mean-over-time", "gamma-t-dropped", "leave-one-out", "scaled"},
        ),
    ],
)
def test_what_is_customary_is_named_and_is_no_fault(
    options: dict[str, Any], names: set[str]
) -> None:
    report = audit(environments=2, **{"baseline": "none", **options})
    assert report.verdict == "convention", report.text()
    check_exhaustive(report)
    assert {convention.name for convention in report.conventions} == names
    biased = {c.name for c in report.conventions if c.bias is None or c.bias > report.tolerance}
    assert biased == names - {"leave-one-out", "constant-scale", "whole-episode-return"}


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"gae_lambda": 0.8}, {"gae", "gamma-t-dropped", "mean-over-time"}),
        ({"bootstrap": True, "normalize": True, **UNBIASED}, {"bootstrapped", "scaled"}),
    ],
    ids=["gae", "bootstrap"],
)
def test_values_of_state_and_time_in_the_returns_are_named_with_the_size_of_their_bias(
    options: dict[str, Any], names: set[str]
) -> None:
    options = {"baseline": "state-value", **options}
    report = audit(environments=1, memory=experience(**options), **options)
    assert report.verdict == "convention", report.text()
    check_exhaustive(report)
    found = {convention.name: convention.bias for convention in report.conventions}
    assert names <= set(found) <= names | {"constant-scale"}
    assert found[next(iter(names & {"gae", "bootstrapped"}))] == report.residual > 0.01


def test_rounding_is_not_taken_for_an_epsilon() -> None:
    """With one, paths of equal returns, whose deviation is 0, would have any weight."""
    observed = observe("Discrete", environments=2, baseline="none", **UNBIASED, normalize=True)
    rng = np.random.default_rng(7)

    def rounded(trace: Trace) -> Trace:
        factor = 1.0 + 1e-12 * rng.standard_normal()
        updates = tuple(
            replace(update, ascent=tuple(
                row and tuple(factor * number for number in row) for row in update.ascent
            ))
            for update in trace.updates
        )  # fmt: skip
        return replace(trace, updates=updates)

    for _ in range(6):
        noisy = replace(observed, traces=tuple(map(rounded, observed.traces)))
        assert report_of(noisy).verdict == "convention"
