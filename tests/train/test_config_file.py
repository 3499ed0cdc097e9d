"""Options from files: the three formats say the same, and each mistake is answered in one line."""

from __future__ import annotations

import json
import math
import re
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from eligibility.errors import EligibilityError, MissingDependencyError
from eligibility.train.config import Config
from eligibility.train.config_file import _TOML, read_options

WANTED = {
    "env": "CartPole-v1",
    "learning_rate": 0.001,
    "hidden_sizes": [32, 16],
    "stop_at": math.inf,
}
TEXTS = {
    "run.yaml": "env: CartPole-v1\nlearning-rate: 1e-3\nhidden_sizes: [32, 16]\nstop_at: inf\n",
    "run.yml": "env: CartPole-v1\nlearning_rate: 0.001\nhidden_sizes: [32, 16]\nstop_at: .inf\n",
    "run.toml": (
        'env = "CartPole-v1"\nlearning-rate = 1e-3\nhidden_sizes = [32, 16]\nstop_at = inf\n'
    ),
    "run.json": json.dumps(WANTED),
}


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_every_format_says_the_same(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(TEXTS[name])
    options = read_options(tmp_path / name)
    assert options == WANTED
    assert Config(**options).hidden_sizes == (32, 16)


def test_a_config_that_was_written_is_read_as_itself(tmp_path: Path) -> None:
    config = Config("CartPole-v1", stop_at=math.inf, baseline="state-value+leave-one-out")
    (tmp_path / "config.json").write_text(json.dumps(asdict(config)))
    assert Config(**read_options(tmp_path / "config.json")) == config


@pytest.mark.parametrize(
    ("name", "text", "got"),
    [
        ("run.ini", "", "the suffix '.ini'"),
        ("none.yaml", None, "No such file or directory"),
        ("list.yaml", "- 1", "a list"),
        ("half.json", "{", "a text that is not json"),
        ("half.toml", "a = ", "a text that is not toml"),
        ("bad.yaml", "a: [", "a text that is not yaml"),
        ("typo.yaml", "lerning_rate: 1", "the unknown option `lerning_rate`"),
    ],
)
def test_refuses(name: str, text: str | None, got: str, tmp_path: Path) -> None:
    path = tmp_path / name
    if text is not None:
        path.write_text(text)
    start = f"the config `{path}`: got {got}"
    with pytest.raises(EligibilityError, match=f"^{re.escape(start)}") as caught:
        read_options(path)
    assert "\n" not in str(caught.value)
    assert "expected a file of options in YAML, TOML or JSON" in str(caught.value)


@pytest.mark.parametrize(("name", "package"), [("yaml", "pyyaml"), (_TOML, "tomli")])
def test_a_format_whose_package_is_missing_says_so(
    name: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / ("run.toml" if package == "tomli" else "run.yaml")
    path.write_text("")
    monkeypatch.setitem(sys.modules, name, None)
    text = (
        f"the package `{package}`: got no such package, expected eligibility with its "
        'train extra; pip install "eligibility[train]"'
    )
    with pytest.raises(MissingDependencyError, match=f"^{re.escape(text)}$"):
        read_options(path)


def test_a_text_where_a_number_belongs_is_left_for_the_config_to_refuse(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("learning_rate: fast\n")
    assert read_options(tmp_path / "run.yaml") == {"learning_rate": "fast"}
