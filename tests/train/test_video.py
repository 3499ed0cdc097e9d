"""Films: as many pictures as the episode had, and each obstacle said in one line."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from eligibility.errors import EligibilityError, InvalidValueError, MissingDependencyError
from eligibility.train.learner import Reinforce
from eligibility.train.video import record_video

HERE = "tests.train.environments:"


def test_a_gif_holds_the_episode(tmp_path: Path) -> None:
    path = tmp_path / "lamp.gif"
    assert record_video(Reinforce(HERE + "Lamp-v0"), path, seed=0) == 5
    with Image.open(path) as film:
        assert film.size == (24, 16)
        assert film.n_frames == 6
        assert film.info["duration"] == 100
        film.seek(3)
        assert abs(int(np.asarray(film.convert("L")).mean()) - 120) <= 2


def test_an_environment_that_cannot_show_itself_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EligibilityError, match=r"^the environment's picture: got") as caught:
        record_video(Reinforce(HERE + "Bandit-v0"), tmp_path / "a.gif", seed=0)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "a.gif").exists()


def test_an_environment_that_shows_no_picture_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EligibilityError, match=r"^the environment's picture: got str for a pictu"):
        record_video(Reinforce(HERE + "Spoken-v0"), tmp_path / "a.gif", seed=0)


def test_another_suffix_is_refused(tmp_path: Path) -> None:
    text = (
        "^`--video`: got 'a.avi', expected a name that ends in .gif or .mp4; choose another name$"
    )
    with pytest.raises(InvalidValueError, match=text):
        record_video(Reinforce(HERE + "Lamp-v0"), tmp_path / "a.avi", seed=0)


def test_mp4_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(MissingDependencyError, match=r"^the package `imageio-ffmpeg`: got no such"):
        record_video(Reinforce(HERE + "Lamp-v0"), tmp_path / "a.mp4", seed=0)
