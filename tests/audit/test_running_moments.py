"""Running means and variances that divide what a program sees."""

from __future__ import annotations

import builtins
from pathlib import Path

import gymnasium.wrappers.utils
import pytest

from tests.audit.writing import audited

_NUMPY = ("import gymnasium as gym\n", "import gymnasium as gym\nimport numpy\n")
_MADE = 'env = gym.make("CartPole-v1")'
_WRAPPED = f"""{_MADE}
env = gym.wrappers.NormalizeObservation(env)
env = gym.wrappers.NormalizeReward(env, gamma=GAMMA)
"""
_OWN = f"""{_MADE}
class RunningMeanStd:
    def __init__(self):
        self.mean, self.var, self.count = START, torch.ones(()), 1e-4

    def update(self, x):
        self.count += 1
        self.mean = self.mean + (x - self.mean) / self.count
        self.var = self.var + ((x - self.mean) ** 2 - self.var) / self.count


moments = RunningMeanStd()


def scaled(reward):
    moments.update(x=reward)
    return reward / (float(moments.var) + 1e-8) ** 0.5

"""

_COUNTED = f"""{_MADE}
class RunningMeanStd:
    def __init__(self, shape):
        self.n = 0
        self.mean = numpy.zeros(shape)
        self.S = numpy.zeros(shape)
        self.std = numpy.sqrt(self.S)

    def update(self, x):
        x = numpy.array(x)
        self.n += 1
        if self.n == 1:
            self.mean = self.std = x
        else:
            before, self.mean = self.mean, self.mean + (x - self.mean) / self.n
            self.S = self.S + (x - before) * (x - self.mean)
            self.std = numpy.sqrt(self.S / self.n)


moments = RunningMeanStd(1)


def scaled(reward):
    moments.update([reward])
    return float(((reward - moments.mean) / (moments.std + 1e-8))[0])

"""
_FILTERED = f"""{_MADE}
class ZFilter:
    def __init__(self):
        self.n, self.mean = 0, 0.0

    def __call__(self, x, update=True):
        self.n += 1
        self.mean += (x - self.mean) / self.n
        return max(-5.0, min(5.0, x - self.mean))


scaled = ZFilter()

"""


@pytest.mark.parametrize(
    "changes",
    [
        [(_MADE, _WRAPPED)],
        [
            (_MADE, _OWN.replace("START", "torch.zeros(())")),
            ("rewards.append(reward)", "rewards.append(scaled(reward))"),
        ],
        [(_MADE, _COUNTED), ("rewards.append(reward)", "rewards.append(scaled(reward))")],
        [(_MADE, _FILTERED), ("rewards.append(reward)", "rewards.append(scaled(reward))")],
    ],
    ids=["gymnasium's wrappers", "from a variance of 1", "from no count", "a filter"],
)
def test_a_program_is_judged_without_what_follows_all_steps(
    changes: list[tuple[str, str]], tmp_path: Path
) -> None:
    stock = vars(gymnasium.wrappers.utils.RunningMeanStd)["update"], builtins.__build_class__
    report = audited(tmp_path, _NUMPY, *changes)
    assert not report.findings, report.text()
    assert [convention.name for convention in report.conventions] == ["running-normalisation"]
    assert (report.verdict, report.updates) == ("convention", 2)
    assert stock == (
        vars(gymnasium.wrappers.utils.RunningMeanStd)["update"],
        builtins.__build_class__,
    )


def test_moments_that_divide_from_the_start_are_the_programs_own(tmp_path: Path) -> None:
    report = audited(
        tmp_path,
        _NUMPY,
        (_MADE, _OWN.replace("START", "torch.ones(())")),
        ("rewards.append(reward)", "rewards.append(scaled(reward))"),
    )
    assert "running-normalisation" not in {convention.name for convention in report.conventions}
    assert report.verdict == "unexplained", report.text()
