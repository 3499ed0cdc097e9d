"""Records read back, and runs put together that belong together."""

from __future__ import annotations

import io
import json
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from eligibility.errors import InvalidValueError
from eligibility.train.curve import draw_groups, returns_at
from eligibility.train.progress import Progress
from eligibility.train.record import Result, curve_text, read_curve, read_groups, read_result

FACTS = {
    "gradient_noise": 1 / 7,
    "signal_to_noise": 1e9,
    "saturated": 0.25,
    "effective_batch": 1e3 / 7,
    "explained_variance": -0.1,
}
ROWS = [
    Progress(1, 100, 64, rollout_return=1 / 3, mean_return=1 / 3, entropy=0.1, gradient_norm=2.0),
    Progress(2, 300, 128, rollout_return=5.0, mean_return=3.0, entropy=1e-9, gradient_norm=0.0),
]
ROWS = [replace(row, **FACTS) for row in ROWS]


def record(folder: Path, **config: object) -> Path:
    """The record of a run."""
    folder.mkdir()
    (folder / "curve.csv").write_text(curve_text(ROWS))
    (folder / "config.json").write_text(json.dumps({"env": "CartPole-v1", "seed": 0, **config}))
    return folder


def test_numbers_come_back_exactly(tmp_path: Path) -> None:
    assert read_curve(record(tmp_path / "run")) == ROWS


def test_runs_that_differ_in_their_seed_only_are_one_group(tmp_path: Path) -> None:
    runs = [record(tmp_path / str(seed), seed=seed) for seed in range(3)]
    assert {name: len(group) for name, group in read_groups(runs).items()} == {"CartPole-v1": 3}


def test_groups_are_named_after_what_they_differ_in(tmp_path: Path) -> None:
    runs = [
        record(tmp_path / "a", baseline="none", discount=0.9),
        record(tmp_path / "b", baseline="state-value", discount=0.9),
        record(tmp_path / "c", baseline="state-value", discount=0.9, env="Acrobot-v1"),
    ]
    assert list(read_groups(runs)) == [
        "CartPole-v1, baseline none",
        "CartPole-v1, baseline state-value",
        "Acrobot-v1",
    ]


def test_a_run_counts_with_its_last_value_after_its_end() -> None:
    got = returns_at(ROWS, np.array([0.0, 100.0, 200.0, 900.0]))
    assert got.tolist() == pytest.approx([1 / 3, 1 / 3, (1 / 3 + 3) / 2, 3.0])


def test_groups_are_drawn_as_a_picture(tmp_path: Path) -> None:
    groups = {"one": [ROWS], "two": [ROWS, ROWS]}
    assert draw_groups(groups, "title").startswith(b"\x89PNG")


@pytest.mark.filterwarnings("error")  # matplotlib's, of axes for which no room is left
def test_long_names_stand_below_the_axes() -> None:
    names = [f"CartPole-v1, {'baseline leave-one-out, ' * 12}seed {n}" for n in range(12)]
    few = draw_groups({name: [ROWS] for name in names[:2]}, "title")
    many = draw_groups({name: [ROWS] for name in names}, "title")
    heights = [Image.open(io.BytesIO(picture)).height for picture in (few, many)]
    assert 540 < heights[0] < heights[1]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("curve.csv", "updates,steps\n1,2\n"),
        ("curve.csv", ""),
        ("curve.csv", '"' + "x" * 200_000),
        ("config.json", "[]"),
        ("config.json", "[" * 200_000),
        ("config.json", '{"env": ["CartPole-v1"]}'),
        ("config.json", '{"env": "CartPole-v1", "steps": "many"}'),
        ("config.json", '{"env": "CartPole-v1", "run_this": 1}'),
    ],
)
def test_a_damaged_record_is_refused(name: str, content: str, tmp_path: Path) -> None:
    folder = record(tmp_path / "run")
    (folder / name).write_text(content)
    text = (
        f"the record `{folder}/{name}`: got a missing or damaged file, expected the file that the "
        "run wrote; restore it from a copy, or train again"
    )
    with pytest.raises(InvalidValueError, match=f"^{re.escape(text)}$"):
        read_groups([folder])


def test_a_result_that_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match=r"result\.json`: got a missing or damaged file"):
        read_result(record(tmp_path / "run"))


@pytest.mark.parametrize(
    "change",
    [
        {"solved": 1}, {"steps": -1}, {"steps": True}, {"steps": 1e3}, {"updates": [1]},
        {"training_seconds": "1"}, {"training_seconds": float("nan")}, {"mean_return": []},
        {"run": None},
    ],
)  # fmt: skip
def test_a_result_that_cannot_be_true_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    result = Result(
        solved=True, training_seconds=0.5, steps=7, updates=2, mean_return=3.0, run="run"
    )
    path = tmp_path / "result.json"
    path.write_text(json.dumps(asdict(result)))
    assert read_result(tmp_path) == result
    path.write_text(json.dumps({**asdict(result), **change}))
    with pytest.raises(InvalidValueError, match=r"result\.json`: got a missing or damaged file"):
        read_result(tmp_path)


def test_a_curve_whose_steps_do_not_grow_is_refused(tmp_path: Path) -> None:
    folder = record(tmp_path / "run")
    (folder / "curve.csv").write_text(curve_text(ROWS[::-1]))
    with pytest.raises(InvalidValueError, match=r"curve\.csv`: got a missing or damaged file"):
        read_curve(folder)
