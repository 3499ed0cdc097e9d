"""Keywords with which an environment is made: by every way to name one, kept and trusted."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium import spaces

from eligibility.errors import EligibilityError, InvalidValueError
from eligibility.train.config import Config
from eligibility.train.learner import Reinforce
from tests.train.test_environment_sources import Walk


class Limited(Walk):
    """A walk that pays a given wage for each step."""

    def __init__(self, wage: float = 0.0, names: list[str] | None = None) -> None:
        super().__init__()
        self.wage, self.names = wage, names

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """The same step at another wage."""
        seen, _, terminated, truncated, info = super().step(action)
        return seen, self.wage, terminated, truncated, info


def wages(model: Reinforce) -> set[float]:
    """What a rollout's steps have paid."""
    rollout = model.shards.collect(model.network, 0)
    return {*rollout.rewards[rollout.alive].tolist()}


def test_an_environment_by_id_is_made_with_them() -> None:
    model = Reinforce("FrozenLake-v1", env_kwargs={"map_name": "8x8", "is_slippery": False})
    assert model.shards.vector.single_observation_space == spaces.Discrete(64)
    model.shards.prepare()
    assert not model.shards.vector.get_attr("spec")[0].kwargs["is_slippery"]


def test_so_is_one_with_a_vectorised_implementation() -> None:
    model = Reinforce("CartPole-v1", env_kwargs={"sutton_barto_reward": True}, environments=8)
    assert wages(model) == {0.0, -1.0}


def test_so_is_one_of_a_function_and_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert wages(Reinforce(Limited, environments=4, env_kwargs={"wage": 2.5})) == {2.5}
    monkeypatch.chdir(tmp_path)
    text = f"from {__name__} import Limited\n"
    (tmp_path / "limited.py").write_text(text, encoding="utf-8")
    model = Reinforce("limited.py:Limited", environments=4, env_kwargs="wage=-1,names=[]")
    assert wages(model) == {-1.0}


@pytest.mark.parametrize(
    ("text", "keywords"),
    [
        ("is_slippery=false,map_name=8x8", {"is_slippery": False, "map_name": "8x8"}),
        (
            '{"desc": ["SF", "FG"], "render_mode": null}',
            {"desc": ["SF", "FG"], "render_mode": None},
        ),
        ("wage=1e-3, path=a=b", {"wage": 1e-3, "path": "a=b"}),
        ("", {}),
    ],
)
def test_a_text_is_read_as_the_command_line_has_it(text: str, keywords: dict[str, Any]) -> None:
    assert Config("FrozenLake-v1", env_kwargs=text).env_kwargs == keywords  # type: ignore[arg-type]  # as typed


@pytest.mark.parametrize(
    "got", ["slippery", "3=4", {1: 2}, {"wage": float("nan")}, {"f": print}, [], "{", "[" * 10**5]
)
def test_what_is_not_names_and_json_is_refused(got: Any) -> None:
    expected = "expected names and values, such as is_slippery=false,map_name=8x8, or as JSON"
    with pytest.raises(EligibilityError, match=f"^`env_kwargs`: got .*{re.escape(expected)}"):
        Config("FrozenLake-v1", env_kwargs=got)


def test_a_keyword_that_the_environment_does_not_take_is_named() -> None:
    text = (
        "`env_kwargs`: got {'gravity': 1} (CartPoleVectorEnv.__init__() got an unexpected keyword "
        "argument 'gravity'"
    )
    with pytest.raises(InvalidValueError, match=f"^{re.escape(text)}"):
        Reinforce("CartPole-v1", env_kwargs={"gravity": 1})


@pytest.mark.parametrize(
    "made", [Walk, lambda: gymnasium.vector.SyncVectorEnv([Walk] * 2)], ids=["one", "several"]
)
def test_an_environment_that_is_made_takes_none(made: Any) -> None:
    text = (
        "`env_kwargs`: got {'wage': 1}, expected none with an existing environment; "
        "create it with them, or pass its id or a function that creates it"
    )
    with pytest.raises(InvalidValueError, match=f"^{re.escape(text)}$"):
        Reinforce(made(), env_kwargs={"wage": 1})


def test_a_checkpoint_goes_on_with_them_bit_for_bit(tmp_path: Path) -> None:
    options: dict[str, Any] = {"environments": 8, "env_kwargs": {"is_slippery": False}}
    whole = Reinforce("FrozenLake-v1", **options).learn(total_steps=400)
    half = Reinforce("FrozenLake-v1", **options).learn(total_steps=200)
    resumed = Reinforce.load(half.save(tmp_path / "half"))
    assert resumed.config.env_kwargs == {"is_slippery": False}
    ends = [one.save(tmp_path / name) for one, name in ((whole, "a"), (resumed, "b"))]
    assert ends[0].read_bytes() != ends[1].read_bytes()
    resumed.learn(total_steps=400).save(tmp_path / "b")
    assert ends[0].read_bytes() == ends[1].read_bytes()


def test_another_environment_comes_with_its_own(tmp_path: Path) -> None:
    model = Reinforce("FrozenLake-v1", environments=4, env_kwargs={"is_slippery": False})
    path = model.save(tmp_path / "model")
    other = Reinforce.load(path, env_kwargs={"is_slippery": True, "success_rate": 0.9})
    assert other.config.env_kwargs == {"is_slippery": True, "success_rate": 0.9}
    model.set_env("FrozenLake-v1")
    assert model.config.env_kwargs is None


def test_a_module_that_only_a_file_names_in_them_is_not_imported(tmp_path: Path) -> None:
    model = Reinforce("FrozenLake-v1", environments=4, env_kwargs={"map_name": "4x4"})
    model.config.env_kwargs["map_name"] = "stranger:Map"  # type: ignore[index]  # it is set
    path = model.save(tmp_path / "model")
    text = "got `stranger:Map`, which imports the module `stranger` and therefore runs its code"
    for env in (None, "FrozenLake-v1"):
        with pytest.raises(InvalidValueError, match=re.escape(text)):
            Reinforce.load(path, env=env)
    assert Reinforce.load(path, env_kwargs={}).config.env_kwargs == {}


def test_a_text_that_is_no_keywords_is_shown() -> None:
    with pytest.raises(EligibilityError, match=r"^`env_kwargs`: got 'slippery', expected names "):
        Config("FrozenLake-v1", env_kwargs="slippery")  # type: ignore[arg-type]
