"""Returns that start again at every reward but 0, as in Karpathy's Pong."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.audit.writing import audited, line_of

SUM = "        running = reward + GAMMA * running"
CUT = "        running = 0.0 if reward != 0 else running\n" + SUM
IN_PONG = (
    ('gym.make("CartPole-v1")', 'gym.make("ALE/Pong-v5")'),
    ("torch.nn.Linear(4, 8)", "torch.nn.Linear(3, 8)"),
    ("torch.as_tensor(obs,", "torch.as_tensor(obs[0, 0],"),
)
WHITENED = (
    "returns = torch.tensor(returns)",
    "returns = torch.tensor(returns)\n"
    "    returns = (returns - returns.mean()) / (returns.std(correction=0) + 1e-8)",
)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param([], id="plain"),
        pytest.param([WHITENED], id="whitened"),
        pytest.param([("gamma_t * log_probs", "log_probs")], id="without the discount's powers"),
    ],
)
def test_a_return_that_starts_again_at_each_reward_is_a_convention_in_pong(
    changes: list[tuple[str, str]], tmp_path: Path
) -> None:
    report = audited(tmp_path, *IN_PONG, (SUM, CUT), *changes)
    assert report.verdict == "convention", report.text()
    named = {convention.name for convention in report.conventions}
    assert "return-cut-at-reward" in named
    assert ("whitened" in named) == (WHITENED in changes)
    assert not report.faults
    assert "reward-to-go (γ = 0.9)" in report.rule


@pytest.mark.parametrize(
    ("changes", "summed"),
    [
        pytest.param((), CUT, id="where every reward is 1"),
        pytest.param((), "        running = reward", id="alone"),
        pytest.param(IN_PONG, "        running = reward", id="alone in Pong"),
    ],
)
def test_an_immediate_reward_is_a_fault(
    changes: tuple[tuple[str, str], ...], summed: str, tmp_path: Path
) -> None:
    report = audited(tmp_path, *changes, (SUM, summed))
    assert [finding.rule for finding in report.faults] == ["immediate-reward"], report.text()
    if summed != CUT:
        assert report.faults[0].line == line_of(tmp_path / "program.py", summed)
