"""``eligibility plot``."""

from __future__ import annotations

from pathlib import Path

import pytest

from eligibility.cli.app import main
from eligibility.train.learner import Reinforce
from eligibility.train.run_folder import RunFolder


def test_plot_draws_the_curves_of_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in (1, 2):
        model = Reinforce("CartPole-v1", seed=seed, steps=3000)
        folder = RunFolder(tmp_path / f"run{seed}", model)
        model.learn(callback=folder)
        folder.finish()
    picture = tmp_path / "curves.png"
    runs = [str(tmp_path / "run1"), str(tmp_path / "run2")]
    with pytest.raises(SystemExit) as status:
        main(["plot", *runs, "--out", str(picture)])
    assert status.value.code == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("CartPole-v1: 2 run(s), mean return ")
    assert lines[1] == f"drawn in {picture}"


def test_plot_of_what_is_no_run_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as status:
        main(["plot", str(tmp_path), "--out", str(tmp_path / "curves.png")])
    assert status.value.code == 2
    assert capsys.readouterr().err == (
        f"error: `{tmp_path}`: got no run folder, expected a run folder, or a folder of several; "
        "pass what eligibility train or sweep has written\n"
    )
