"""A checkpoint from a stranger: it imports nothing, and nonsense in it is one clear error."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from eligibility.errors import EligibilityError, InvalidValueError
from eligibility.train import environments, shards
from eligibility.train.checkpoint import FILE_NAME
from eligibility.train.learner import Reinforce
from eligibility.train.run_folder import load_run
from tests.cli.test_train import HERE
from tests.train.environments import Contextual
from tests.train.forgery import Facts, Tensors, deep, forge, with_header

OPTIONS: dict[str, Any] = {
    "environments": 4, "hidden_sizes": (8,), "baseline": "state-value+per-weight",
    "normalize_observations": True,
}  # fmt: skip


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained model with everything that a checkpoint can hold."""
    model = Reinforce("CartPole-v1", **OPTIONS)
    model.learn(total_steps=200)
    return model.save(tmp_path_factory.mktemp("original") / FILE_NAME)


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module on the path that leaves a mark where it is imported; the mark."""
    mark = tmp_path / "imported"
    (tmp_path / "stranger.py").write_text(f"open({str(mark)!r}, 'w').close()\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "stranger", raising=False)
    return mark


def test_a_module_that_only_the_file_names_is_not_imported(
    original: Path, hostile: Path, tmp_path: Path
) -> None:
    def change(facts: Facts, tensors: Tensors) -> None:
        facts["config"]["env"] = "stranger:CartPole-v1"

    path = forge(original, tmp_path / FILE_NAME, change)
    text = (
        f"the environment in the checkpoint `{path}`: got `stranger:CartPole-v1`, which imports "
        "the module `stranger` and therefore runs its code, expected an environment that "
        "Gymnasium registers itself, or a module that you trust and name; if you trust it, pass "
        "--allow-module stranger (in "
        "Python allow_modules=['stranger'])"
    )
    with pytest.raises(InvalidValueError, match=f"^{re.escape(text)}$"):
        Reinforce.load(path)
    with pytest.raises(InvalidValueError, match="which imports the module `stranger`"):
        Reinforce.load(path, allow_modules=["strange", "stranger.part"])
    assert not hostile.exists()
    assert Reinforce.load(path, env="CartPole-v1").config.env == "CartPole-v1"
    assert not hostile.exists()
    Reinforce.load(path, allow_modules=["stranger"])
    assert hostile.exists()


def test_neither_is_one_that_only_a_config_names(hostile: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"env": "stranger:CartPole-v1"}))
    with pytest.raises(InvalidValueError, match=r"^the environment in the run folder `.*`: got `s"):
        load_run(tmp_path, {})
    assert not hostile.exists()
    load_run(tmp_path, {}, allow_modules=["stranger"])
    assert hostile.exists()


def test_a_package_allows_the_modules_within_it(tmp_path: Path) -> None:
    path = Reinforce(HERE + "Bandit-v0").save(tmp_path / "model")
    for allowed in ("tests", "tests.train", "tests.train.environments"):
        assert Reinforce.load(path, allow_modules=[allowed]).config.env == HERE + "Bandit-v0"
    with pytest.raises(InvalidValueError, match=r"imports the module `tests\.train\.environments`"):
        Reinforce.load(path)


def _set(*keys: str, to: Any) -> Any:
    def change(facts: Facts, tensors: Tensors) -> None:
        for key in keys[:-1]:
            facts = facts[key]
        facts[keys[-1]] = to

    return change


def _tensor(name: str, to: torch.Tensor | None) -> Any:
    def change(facts: Facts, tensors: Tensors) -> None:
        assert name in tensors or to is not None
        tensors.pop(name, None)
        if to is not None:
            tensors[name] = to

    return change


FORGERIES = {
    "300,000 environments": _set("config", "environments", to=300_000),
    "a million threads": _set("config", "threads", to=10**6),
    "a network of a billion": _set("config", "hidden_sizes", to=[10**9]),
    "a network that the weights are not": _set("config", "hidden_sizes", to=[65_536, 65_536]),
    "steps without end": _set("config", "steps", to=10**400),
    "a learning rate in words": _set("config", "learning_rate", to="fast"),
    "an unknown option": _set("config", "run_this", to="rm"),
    "an option that is a keyword of ours": _set("config", "network", to="os.system"),
    "an environment that is a list": _set("config", "env", to=["CartPole-v1"]),
    "an environment that steers the terminal": _set("config", "env", to="\x1b]0;title\x07-v1"),
    "no config": _set("config", to=None),
    "facts that are no object": _set("config", to=[1, 2]),
    "progress in words": _set("progress", "steps", to="many"),
    "progress below zero": _set("progress", "episodes", to=-1),
    "progress that is a truth": _set("progress", "updates", to=True),
    "progress that is a list": _set("progress", to=[]),
    "a solved that is no truth": _set("progress", "solved", to=1),
    "recent returns without end": _set("recent", to=[1.0] * 100_000),
    "recent returns in words": _set("recent", to=["1"] * 4),
    "recent returns that are not finite": _set("recent", to=[float("nan")] * 4),
    "recent returns of nobody": _set("recent", to=[]),
    "code of its own that is a word": _set("own_network", to="yes"),
    "no optimizer": _tensor("optimizer.0.exp_avg", None),
    "no weights": _tensor("network.layers.0.weight", None),
    "weights of another kind": _tensor("network.layers.0.bias", torch.zeros(8).double()),
    "weights of another shape": _tensor("network.layers.0.bias", torch.zeros(9)),
    "weights that are not finite": _tensor("network.layers.0.bias", torch.full((8,), torch.nan)),
    "an optimizer that counts backwards": _tensor("optimizer.0.step", torch.tensor(-1.0)),
    "squares below zero": _tensor("optimizer.1.exp_avg_sq", torch.full((8,), -1.0)),
    "an optimizer of another shape": _tensor("optimizer.0.exp_avg", torch.zeros(1)),
    "a tensor too many": _tensor("network.backdoor", torch.zeros(1)),
    "a value function of another size": _tensor(
        "gradient.baseline.state-value.weights", torch.zeros(5).double()
    ),
    "half of an average": _tensor("gradient.per_weight.squares.layers.0.bias", None),
    "counts below zero": _tensor("network.normalization.count", torch.tensor(-1.0).double()),
    "a shape without end": _tensor("network.layers.0.bias", torch.zeros(0, 2**40)),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_with_a_right_checksum_is_refused_before_anything_is_made(
    name: str, original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    make = environments.make_vector
    monkeypatch.setattr(
        "eligibility.train.environment_sources.make_vector",
        lambda env, number, keywords: made.append(number) or make(env, number),
    )
    path = forge(original, tmp_path / FILE_NAME, FORGERIES[name])
    with pytest.raises(InvalidValueError) as caught:
        Reinforce.load(path)
    assert re.match(
        rf"the checkpoint `{path}`: got a damaged or foreign file \(.+\), expected a checkpoint of "
        "format version 2; train again, or restore it from a copy$|`network`: got a network other ",
        str(caught.value),
    ), str(caught.value)
    assert "\n" not in str(caught.value)
    assert made in ([], [1])  # at most one environment, to know its spaces


@pytest.mark.parametrize(
    "header",
    [
        deep(200_000),
        "[]",
        "null",
        '"text"',
        "{}",
        '{"format_version": 2, "sha256": 7}',
        '{"format_version": 2, "sha256": "", "facts": []}',
        '{"format_version": 2, "sha256": "", "facts": ' + "9" * 5000 + "}",
    ],
    ids=lambda header: header[:40],
)
def test_a_header_of_nonsense_is_refused(header: str, tmp_path: Path) -> None:
    path = with_header(tmp_path / FILE_NAME, header)
    with pytest.raises(EligibilityError, match="got a damaged or foreign file, expected a checkp"):
        Reinforce.load(path)


def test_a_version_that_is_no_number_is_shown_in_part(tmp_path: Path) -> None:
    header = json.dumps({"format_version": [["\x1b[2J"] * 9] * 9, "sha256": ""})
    with pytest.raises(EligibilityError, match=r"got format version \[\['.x1b") as caught:
        Reinforce.load(with_header(tmp_path / FILE_NAME, header))
    assert len(str(caught.value)) < 1000


def test_what_is_no_file_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "long").write_bytes((2**40).to_bytes(8, "little") + b"{}")
    for name in ("pipe", "long"):
        with pytest.raises(EligibilityError, match="got a damaged or foreign file"):
            Reinforce.load(tmp_path / name)


def test_a_model_is_loaded_into_another_environment_of_the_same_spaces(tmp_path: Path) -> None:
    path = Reinforce(HERE + "Bandit-v0", seed=3).save(tmp_path / "model")
    for env in (HERE + "Crashing-v0", HERE + "Endless-v0"):
        assert Reinforce.load(path, env=env).config.env == env
    with pytest.raises(InvalidValueError, match=r"^`env`: got `Contextual`, which needs"):
        Reinforce.load(path, env=Contextual)


def test_loading_makes_one_environment_and_learning_the_others(
    original: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    interface = shards.interface
    monkeypatch.setattr(
        shards,
        "interface",
        lambda vector, config: made.append(vector.num_envs) or interface(vector, config),
    )
    model = Reinforce.load(original)
    assert made == [1]
    model.learn(total_steps=300)
    assert made == [1, 4]
