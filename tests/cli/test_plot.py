"""``eligibility plot``."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from eligibility.train.learner import Reinforce
from eligibility.train.run_folder import RunFolder
from tests.cli.conftest import Command


def test_plot_draws_the_curves_of_runs(tmp_path: Path, eligibility: Command) -> None:
    for seed in (1, 2):
        model = Reinforce("CartPole-v1", seed=seed, steps=3000)
        folder = RunFolder(tmp_path / f"run{seed}", model)
        model.learn(callback=folder)
        folder.finish()
    (tmp_path / "all" / "of" / "them").mkdir(parents=True)
    for name in ("run1", "run2"):
        (tmp_path / name).rename(tmp_path / "all" / "of" / "them" / name)
    status, output, _ = eligibility("plot", "all", "--out", "curves.png")
    assert status == 0
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    lines = output.splitlines()
    assert lines[0].startswith("CartPole-v1: 2 runs, mean return ")
    assert lines[1] == "drawn in curves.png"


def test_plot_of_what_is_no_run_is_one_line(eligibility: Command) -> None:
    status, _, errors = eligibility("plot", ".", "--out", "curves.png")
    assert status == 2
    assert errors == (
        "error: `.`: got no run folder, expected a run folder, or a folder of several; "
        "pass a folder that eligibility train or sweep wrote\n"
    )


def test_plot_without_matplotlib_says_what_is_missing(
    eligibility: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *rest: (name != "matplotlib" and find(name, *rest)) or None,
    )
    assert eligibility("plot", ".", "--out", "curves.png") == (
        2,
        "",
        "error: the package `matplotlib`: got no such package, expected eligibility with its "
        'train extra; pip install "eligibility[train]"\n',
    )
