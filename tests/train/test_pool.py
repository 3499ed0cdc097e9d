"""What makes EnvPool's environments ours, with a stand-in for EnvPool.

The package and its assets are half a gigabyte, too much for every test run. With the real one
(1.2.5), the preset of CartPole-v1 was trained by hand: solved, the same run bit for bit from the
same seed, and after a resumption.
"""

from __future__ import annotations

import json
import sys
import types
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

from benchmarks.cartpole import RESULTS
from eligibility.cli.app import main
from eligibility.errors import MissingDependencyError
from eligibility.train import presets
from eligibility.train.environments import horizon, make_vector, reward_threshold
from eligibility.train.learner import Reinforce


class Pool(SyncVectorEnv):
    """As EnvPool's: seeded when it is made, and a reset goes on from there."""

    def __init__(self, task: str, num_envs: int, seed: int) -> None:
        super().__init__([lambda: gymnasium.make(task)] * num_envs)
        self.config = {"max_episode_steps": 77}
        self.spec: Any = types.SimpleNamespace(reward_threshold=12.0)
        super().reset(seed=seed)

    def reset(self, **options: Any) -> Any:
        assert "seed" not in options
        return super().reset(**options)


@pytest.fixture
def envpool(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("envpool")
    module.make_gymnasium = Pool
    monkeypatch.setitem(sys.modules, "envpool", module)
    monkeypatch.delitem(sys.modules, "eligibility.train.vectors", raising=False)


@pytest.mark.usefixtures("envpool")
def test_a_reset_with_a_seed_depends_on_the_seed_alone() -> None:
    vector = make_vector("envpool:CartPole-v1", 3)
    first, other = (vector.reset(seed=seed)[0].copy() for seed in (5, 6))
    vector.step(np.zeros(3, int))
    assert np.array_equal(vector.reset(seed=5)[0], first)
    assert not np.array_equal(other, first)
    assert not np.array_equal(vector.reset()[0], first)
    assert (horizon(vector, None), reward_threshold(vector)) == (77, 12.0)
    vector.close()


@pytest.mark.usefixtures("envpool")
def test_the_trainer_takes_it() -> None:
    model = Reinforce("envpool:CartPole-v1", environments=4).learn(100)
    assert model.progress.updates > 0


def test_a_missing_installation_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "envpool", None)
    monkeypatch.delitem(sys.modules, "eligibility.train.vectors", raising=False)
    with pytest.raises(MissingDependencyError, match=r"eligibility\[envpool\]"):
        make_vector("envpool:CartPole-v1", 2)


def installed(monkeypatch: pytest.MonkeyPatch, version: str | None) -> None:
    def found(package: str) -> str:
        assert package == "envpool"
        if version is None:
            raise PackageNotFoundError(package)
        return version

    monkeypatch.setattr(presets, "version", found)


@pytest.mark.parametrize(
    ("version", "env", "chosen"),
    [
        ("1.2.5", "Acrobot-v1", "envpool:Acrobot-v1"),
        ("2.0", "Acrobot-v1", "envpool:Acrobot-v1"),
        ("1.1.9", "Acrobot-v1", None),
        ("nightly", "Acrobot-v1", None),
        (None, "Acrobot-v1", None),
        ("1.2.5", "CartPole-v1", None),
        ("1.2.5", "gymnasium:Acrobot-v1", None),
    ],
)
def test_it_is_chosen_where_it_is_installed_and_quicker(
    version: str | None, env: str, chosen: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(monkeypatch, version)
    assert presets.quicker(env) == chosen


def trained(out: Path, *arguments: str) -> str:
    """The environment that the run folder names."""
    with pytest.raises(SystemExit) as left:
        main(["train", *arguments, "--steps", "1", "--max-episode-steps", "3", "--out", str(out)])
    assert left.value.code == 0
    config = json.loads((out / "config.json").read_text())
    assert config["environments"] == presets.preset("Acrobot-v1")["environments"]
    return str(config["env"])


@pytest.mark.usefixtures("envpool")
def test_the_command_line_chooses_it_and_says_how_to_refuse_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    installed(monkeypatch, "1.2.5")
    assert trained(tmp_path / "pool", "Acrobot-v1") == "envpool:Acrobot-v1"
    note = "note: EnvPool runs Acrobot-v1, "
    said = capsys.readouterr().err
    assert note in said
    assert "to use Gymnasium: eligibility train gymnasium:Acrobot-v1" in said
    assert trained(tmp_path / "own", "gymnasium:Acrobot-v1") == "gymnasium:Acrobot-v1"
    # A config is a record of a run, and what it names is what is trained again.
    config = tmp_path / "acrobot.json"
    config.write_text(json.dumps({"env": "Acrobot-v1"}))
    assert trained(tmp_path / "again", "--config", str(config)) == "Acrobot-v1"
    assert note not in capsys.readouterr().err


def test_its_factors_are_those_of_the_measurement() -> None:
    rows = json.loads((RESULTS / "envpool.json").read_text())["environments"]
    chosen = {
        env: row["factor"]
        for env, row in rows.items()
        if None not in row.get("learned", {"envpool:": [None]})["envpool:"]
    }
    assert chosen == presets.FACTORS
