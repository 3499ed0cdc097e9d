"""An episode as a film: GIF, or MP4 where its encoder is installed."""

from __future__ import annotations

import importlib.util
import io
import os
import warnings
from collections.abc import Mapping
from contextlib import closing
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np

from eligibility.errors import EligibilityError, InvalidValueError, MissingDependencyError
from eligibility.files import check_writable, write_atomically
from eligibility.train.environments import make_vector, make_visible
from eligibility.train.evaluation import play
from eligibility.train.learner import Reinforce
from eligibility.train.policy_spaces import interface
from eligibility.train.rollout import Collector

_RATE = 30  # frames a second, where the environment does not say
# By suffix, what writes it: package and module.
_WRITERS = {".gif": ("pillow", "PIL"), ".mp4": ("imageio-ffmpeg", "imageio_ffmpeg")}
SUFFIXES = tuple(_WRITERS)


def check_video(path: Path, env: str, keywords: Mapping[str, Any] | None = None) -> None:
    """Raise unless a film of ``env``, made with the keywords, can be made and written here."""
    if path.suffix not in SUFFIXES:
        raise InvalidValueError(
            "`--video`", repr(path.name), "a name that ends in .gif or .mp4", "choose another name"
        )
    package, module = _WRITERS[path.suffix]
    if importlib.util.find_spec(module) is None:
        raise MissingDependencyError(
            f"the package `{package}`",
            "no such package",
            f"eligibility with its video extra, for {path.suffix[1:].upper()}",
            'pip install "eligibility[train,video]"'
            + (", or write a .gif" if path.suffix == ".mp4" else ""),
        )
    check_writable(path)
    _visible(env, keywords).close()


def record_video(model: Reinforce, path: Path, seed: int, deterministic: bool = True) -> float:
    """Play one episode and write what it looks like; returns its undiscounted return."""
    config = model.config
    check_video(path, config.env, config.env_kwargs)
    frames: list[Any] = []
    with closing(_visible(config.env, config.env_kwargs)) as vector:
        _film(vector, frames)
        collector = Collector(interface(vector, config), model.horizon)
        total = float(play(collector, model.network, seed, deterministic, episodes=1)[0])
    rate = float(vector.metadata.get("render_fps") or _RATE)
    write_atomically(path, _gif(frames, rate) if path.suffix == ".gif" else _mp4(frames, rate))
    return total


def _visible(env: str, keywords: Mapping[str, Any] | None) -> Any:
    """One environment that draws itself, as a vector of one."""
    if not {"DISPLAY", "WAYLAND_DISPLAY"} & {*os.environ}:
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # else pygame complains of no screen
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # advice to the environment's author
            vector = make_visible(env, keywords)
            vector.reset(seed=0)
            picture = (vector.render() or (None,))[0]
    except Exception as error:  # an environment is anybody's code
        reason = " ".join(str(error).split())
        raise _blind(type(error).__name__ + (f": {reason}" if reason else "")) from error
    if not isinstance(picture, np.ndarray):
        vector.close()
        raise _blind(f"{type(picture).__name__} for a picture")
    if not env.startswith("envpool:"):  # it need not be installed where its runs are filmed
        _check_same(vector.single_observation_space, make_vector(env, 1, keywords))
    return vector


def _check_same(drawn: Any, played: Any) -> None:
    """Raise if what draws itself is observed otherwise than what is played, as ALE's."""
    space = played.single_observation_space
    played.close()
    if drawn.shape != space.shape:
        raise InvalidValueError(
            "`--video`",
            f"observations {list(drawn.shape)} of the environment that draws itself",
            f"{list(space.shape)}, those of the vector environment that is trained on",
            "omit it, or train on file.py:Name, a function that makes one with its wrappers",
        )


def _film(vector: Any, frames: list[Any]) -> None:
    """Take a picture after each reset and each step of a vector of one environment."""

    def filmed(method: Any) -> Any:
        @wraps(method)
        def call(*arguments: Any, **options: Any) -> Any:
            answer = method(*arguments, **options)
            frames.append(vector.render()[0])
            return answer

        return call

    vector.reset, vector.step = filmed(vector.reset), filmed(vector.step)


def _gif(frames: list[Any], rate: float) -> bytes:
    from PIL import Image

    pictures = [Image.fromarray(frame).quantize(64) for frame in frames]
    buffer = io.BytesIO()
    pictures[0].save(
        buffer, format="GIF", save_all=True, append_images=pictures[1:],
        duration=max(20, round(1000 / rate)), loop=0, optimize=False,
    )  # fmt: skip
    return buffer.getvalue()


def _mp4(frames: list[Any], rate: float) -> bytes:
    import tempfile

    import imageio_ffmpeg

    height, width = frames[0].shape[:2]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "video.mp4"
        size = (width, height)
        writer = imageio_ffmpeg.write_frames(str(path), size, fps=rate, macro_block_size=2)
        writer.send(None)
        for frame in frames:
            writer.send(np.ascontiguousarray(frame))
        writer.close()
        return path.read_bytes()


def _blind(got: str) -> EligibilityError:
    return EligibilityError(
        "the environment's picture",
        got,
        'an environment that renders with render_mode="rgb_array"',
        'install what it draws with, for instance pip install "gymnasium[classic-control]", or '
        "give your own the argument render_mode and a method render that returns an array",
    )
