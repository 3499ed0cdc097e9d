"""The statistical test: how often it errs, what it finds, and when the audit falls back on it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor, nn
from torch.distributions import Categorical

import eligibility as el
from eligibility.audit.judgement.evidence import Evidence, gather
from eligibility.audit.judgement.exact import policy_terms
from eligibility.audit.judgement.hotelling import best_test, hotelling, survival
from eligibility.audit.judgement.timeline import Timeline, timeline
from eligibility.audit.running.runner import CallableRunner
from eligibility.audit.running.survey import survey

RUNS, REPETITIONS, LEVEL = 500, 500, 0.02
Array = NDArray[np.float64]


@pytest.mark.parametrize("numerator", [1, 2, 17, 80])
@pytest.mark.parametrize("denominator", [1, 3, 57, 400])
def test_the_tail_of_the_f_distribution_is_scipy_s(numerator: int, denominator: int) -> None:
    for value in (0.0, 1e-6, 0.1, 0.9, 1.0, 2.5, 10.0, 1e4):
        wanted = stats.f.sf(value, numerator, denominator)
        assert survival(value, numerator, denominator) == pytest.approx(wanted, rel=1e-11)
    assert survival(float("inf"), numerator, denominator) == 0.0


class Agent:
    """REINFORCE in which every action gets the return of its episode."""

    def __init__(self) -> None:
        self.net = nn.Linear(4, 2)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.log_probs: list[Tensor] = []

    def act(self, observation: object) -> int:
        dist = Categorical(logits=self.logits(torch.as_tensor(observation)))
        action = dist.sample()
        self.log_probs.append(dist.log_prob(action))
        return int(action)

    def logits(self, observation: Tensor) -> Tensor:
        return self.net(observation)

    def weights(self, rewards: Tensor) -> Tensor:
        return rewards.sum().expand(len(rewards))

    def update(self, rewards: list[float]) -> None:
        loss = -(torch.stack(self.log_probs) * self.weights(torch.tensor(rewards))).sum()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.log_probs.clear()


class Immediate(Agent):
    """Wrong: every action gets its own reward only."""

    def weights(self, rewards: Tensor) -> Tensor:
        return rewards


def enumerated(factory: type[Agent]) -> tuple[Evidence, Timeline]:
    """Every path of a program, with its probability: what samples can be drawn from."""
    import gymnasium

    def program() -> None:
        environment, agent = gymnasium.make("CartPole-v1"), factory()
        while True:
            observation, _ = environment.reset()
            rewards, done = [], False
            while not done:
                action = agent.act(observation)
                observation, reward, terminated, truncated, _ = environment.step(action)
                rewards.append(float(reward))
                done = terminated or truncated
            agent.update(rewards)

    observed = survey(CallableRunner(program), 600, 1, lambda what, done, expected: None)
    assert observed.exhaustive
    evidence = gather(observed)
    assert evidence is not None
    return evidence, timeline(evidence)


def p_values(factory: type[Agent]) -> Array:
    """Of samples of the program's paths, tested against the reward-to-go."""
    evidence, line = enumerated(factory)
    terms = policy_terms(evidence, line, 1.0, True)
    generator = np.random.Generator(np.random.PCG64(4))
    probability = evidence.probability / evidence.probability.sum()
    drawn = generator.choice(len(terms), size=(REPETITIONS, RUNS), p=probability)
    return np.array([hotelling(evidence.ascent[rows], terms[rows]).p_value for rows in drawn])


def test_false_positives_are_as_rare_as_the_level_says() -> None:
    rejected = int((p_values(Agent) < LEVEL).sum())
    low, high = stats.binom.interval(0.999, REPETITIONS, LEVEL)
    assert low <= rejected <= high, f"{rejected} of {REPETITIONS} at the level {LEVEL}"


def test_a_wrong_program_is_rejected_every_time() -> None:
    assert (p_values(Immediate) < 1e-6).all()


def test_hotelling_s_statistic_of_a_gaussian_sample_has_its_distribution() -> None:
    # terms far from 0 without noise: the scale takes their direction, D − 1 degrees are left
    generator = np.random.Generator(np.random.PCG64(2))
    direction = np.array([1.0, -2.0, 0.5])
    found = []
    for _ in range(400):
        terms = np.tile(direction, (60, 1))
        ascent = 3.0 * terms + generator.normal(size=(60, 3)) @ np.diag([1.0, 0.2, 4.0])
        test = hotelling(ascent, terms)
        assert test.degrees == 2
        found.append(test.p_value)
    assert stats.kstest(found, "uniform").pvalue > 0.001


def test_a_sample_that_is_explained_exactly_is_no_contradiction() -> None:
    terms = np.random.Generator(np.random.PCG64(3)).normal(size=(50, 3))
    test = hotelling(2.0 * terms, terms)
    assert test.p_value > 0.5
    assert test.scale == pytest.approx(2.0)
    assert hotelling(-terms, terms).scale == pytest.approx(-1.0)


def test_the_convention_without_discounting_of_time_is_told_apart() -> None:
    evidence, line = enumerated(Agent)
    dropped = replace(evidence, ascent=policy_terms(evidence, line, 0.6, time_discount=False))
    generator = np.random.Generator(np.random.PCG64(5))
    probability = evidence.probability / evidence.probability.sum()
    sample = dropped.where(generator.choice(evidence.paths, size=4000, p=probability))
    noisy = replace(sample, ascent=sample.ascent + 0.1 * generator.normal(size=sample.ascent.shape))
    test = best_test(noisy, timeline(noisy), (0.6,))
    assert (test.discount, test.time_discount) == (0.6, False)
    assert test.p_value > 0.001
    assert hotelling(noisy.ascent, policy_terms(noisy, timeline(noisy), 0.6, True)).p_value < 0.001


class Dropping(Agent):
    """Dropout in the policy: one mask for acting and scoring, a random number nobody reads."""

    def logits(self, observation: Tensor) -> Tensor:
        return self.net(torch.nn.functional.dropout(observation, 0.5))


class DroppingImmediate(Dropping):
    weights = Immediate.weights


class Subsampled(Agent):
    """Scores a random half of its steps, twice as much: right in the mean, on no path by a rule."""

    def weights(self, rewards: Tensor) -> Tensor:
        kept = torch.randint(0, 2, (len(rewards),))
        return 2.0 * kept * rewards.flip(0).cumsum(0).flip(0)


def test_dropout_in_the_policy_is_noted_and_explained_on_every_path() -> None:
    report = el.audit_agent(Dropping, discount=1.0)
    assert report.verdict == "unbiased", report.text()
    assert any("the global generator of torch" in note for note in report.notes)


def test_a_fault_beside_dropout_is_named() -> None:
    report = el.audit_agent(DroppingImmediate, discount=1.0)
    assert [finding.rule for finding in report.findings] == ["immediate-reward"]


def test_what_is_right_only_in_the_mean_is_tested() -> None:
    report = el.audit_agent(Subsampled, discount=1.0)
    assert report.verdict in ("unbiased", "inconclusive"), report.text()
    words = report.summary + " ".join(report.notes)
    assert "Hotelling's T²" in words
    assert "false-positive rate 0.1%" in words


LENGTHY = """
import gymnasium, torch
env = gymnasium.make("CartPole-v1")
net = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
terms, (state, _) = [], env.reset()
for step in range(int("1001")):  # no whole number that could be small
    policy = torch.distributions.Categorical(logits=net(torch.as_tensor(state)))
    action = policy.sample()
    state, reward, terminated, truncated, _ = env.step(action.item())
    terms.append(torch.randint(0, 100, ()) * reward * policy.log_prob(action))
    if terminated or truncated:
        state, _ = env.reset()
(-torch.stack(terms).sum()).backward()
optimizer.step()
"""


def test_a_few_long_runs_are_no_sample(tmp_path: Path) -> None:
    program = tmp_path / "lengthy.py"
    program.write_text(LENGTHY)
    report = el.audit_script(program, discount=1.0, max_paths=4, samples=2)
    assert report.verdict == "inconclusive", report.text()
    assert "100 runs of 1001 steps; shorten the rollout" in report.summary
