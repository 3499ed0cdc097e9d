"""Every preset makes an update; a missing package is named with what installs it."""

from __future__ import annotations

import importlib.util
import re
import sys
from dataclasses import replace

import pytest

from eligibility.errors import MissingDependencyError
from eligibility.train.config import Config
from eligibility.train.environments import make_vector
from eligibility.train.learner import Reinforce
from eligibility.train.presets import PRESETS

# MuJoCo is too large to be installed for every test run.
MUJOCO = {"InvertedPendulum-v5", "Hopper-v5", "HalfCheetah-v5"}
ABSENT = set() if importlib.util.find_spec("mujoco") else MUJOCO
TESTED = sorted(PRESETS.keys() - ABSENT)


@pytest.mark.parametrize("env", TESTED)
def test_a_preset_makes_an_update(env: str) -> None:
    config = Config.from_options(env, {})
    short = replace(config, environments=2, max_episode_steps=30, seed=3)
    options = {name: value for name, value in vars(short).items() if name != "env"}
    model = Reinforce(env, **options)
    before = [parameter.clone() for parameter in model.network.parameters()]
    model.learn(total_steps=1)
    assert model.progress.updates == 1
    assert 2 <= model.progress.steps <= 60
    moved = [
        not old.equal(new) for old, new in zip(before, model.network.parameters(), strict=True)
    ]
    # No reward was met, or the two episodes disagree: nothing to learn.
    assert any(moved) or 0 in (model.progress.gradient_norm, model.progress.signal_to_noise)
    observation, info = make_vector(env, 2).reset(seed=1)
    masks = info.get("action_mask")
    assert len(model.predict(observation, action_masks=masks)) == 2


@pytest.mark.parametrize(
    ("env", "package", "extra"),
    [
        ("ALE/Breakout-v5", "ale_py", "atari"),
        ("eligibility/Pong-v0", "ale_py", "atari"),
        ("MiniGrid-Empty-5x5-v0", "minigrid", "minigrid"),
        ("LunarLander-v3", "Box2D", "box2d"),
        ("InvertedPendulum-v5", "mujoco", "mujoco"),
    ],
)
def test_a_missing_package_is_named_with_the_extra(
    env: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name.startswith("gymnasium.envs.")]:
        if "box2d" in name or "mujoco" in name:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Absent(package), *sys.meta_path])
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == package else find(name)
    )
    text = (
        f"the package `{package}`: got no such package, expected eligibility with its "
        f"{extra} extra; "
        f'pip install "eligibility[{extra}]"'
    )
    with pytest.raises(MissingDependencyError, match=f"^{re.escape(text)}$"):
        make_vector(env, 2)


class Absent:
    """Finds nothing, as Python does, for one package."""

    def __init__(self, package: str) -> None:
        self._package = package

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Raise for the package, leave everything else to the next finder."""
        if name.split(".")[0] == self._package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
