"""Films: as many pictures as the episode had, and each obstacle said in one line."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from eligibility.errors import EligibilityError, InvalidValueError, MissingDependencyError
from eligibility.train.learner import Reinforce
from eligibility.train.video import check_video, record_video

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


OWN = """
from tests.train.environments import Bandit, Lamp as TakesMode

class FixedMode(TakesMode):
    def __init__(self, lights: int = 1) -> None:
        super().__init__(render_mode="rgb_array")

class NoMode(Bandit):
    pass

class NoPicture(Bandit):
    def __init__(self, render_mode: str) -> None:
        super().__init__()
        self.render_mode = render_mode
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(OWN, encoding="utf-8")


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("name", ["TakesMode", "FixedMode"])
def test_an_environment_in_a_file_is_filmed(name: str) -> None:
    assert record_video(Reinforce(f"own.py:{name}"), Path("a.gif"), seed=0) == 5
    with Image.open("a.gif") as film:
        assert (film.size, film.n_frames) == ((24, 16), 6)


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("name", "got"),
    [
        ("NoMode", "TypeError: Bandit.__init__() got an unexpected keyword argument 'render_mode'"),
        ("NoPicture", "NotImplementedError"),
    ],
)
def test_an_environment_in_a_file_that_cannot_show_itself_is_refused(name: str, got: str) -> None:
    with pytest.raises(EligibilityError) as caught:
        check_video(Path("a.gif"), f"own.py:{name}")
    assert str(caught.value) == (
        f"the environment's picture: got {got}, expected an environment that renders with "
        'render_mode="rgb_array"; install what it draws with, for instance pip install '
        '"gymnasium[classic-control]", or give your own the argument render_mode and a method '
        "render that returns an array"
    )


@pytest.mark.usefixtures("own")
def test_a_wrong_keyword_of_an_environment_that_draws_is_told() -> None:
    with pytest.raises(EligibilityError, match="unexpected keyword argument 'lamps'"):
        check_video(Path("a.gif"), "own.py:FixedMode", {"lamps": 2})


def test_what_envpool_runs_is_drawn_by_gymnasium(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    importlib.import_module(HERE.removesuffix(":"))  # it registers the environment
    monkeypatch.setitem(sys.modules, "envpool", None)
    check_video(tmp_path / "a.gif", "envpool:Lamp-v0")


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
