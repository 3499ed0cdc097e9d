"""One training process a seed, several at a time, and what they left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from eligibility.errors import InvalidValueError
from eligibility.files import write_atomically
from eligibility.train.config import Config, as_written
from eligibility.train.domains import shown
from eligibility.train.environments import modules_named
from eligibility.train.record import CONFIG, RESULT, FolderLock, read_result, read_run_config

_POLL_SECONDS = 0.05
_MOST_SEEDS = 10_000


def read_seeds(text: str) -> list[int]:
    """``3`` as 0, 1, 2: that number of seeds; ``0-2,7`` as 0, 1, 2, 7: these."""
    number = _whole(text)
    parts = text.split(",") if number is None else [f"0-{number - 1}" if number else ""]
    seeds: list[int] = []
    for part in parts:
        first, dash, last = part.partition("-")
        start = _whole(first)
        end = _whole(last) if dash else start
        if start is None or end is None or not 0 <= end - start < _MOST_SEEDS:
            raise InvalidValueError(
                "`--seeds`",
                shown(text),
                f"a number of seeds up to {_MOST_SEEDS}, or a list such as 0-9 or 0,3,5-7",
                "correct it; write 7-7 to run seed 7 alone",
            )
        seeds += range(start, end + 1)
    if len({*seeds}) < len(seeds):
        raise InvalidValueError("`--seeds`", shown(text), "each seed once", "correct it")
    return seeds


def _whole(text: str) -> int | None:
    """The number that a text is, if it is one that a seed can be."""
    text = text.strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 20 else None


class Seeds:
    """The runs of a sweep, ``seed-N`` each in one folder."""

    def __init__(
        self, folder: Path, config: Config, seeds: list[int], allow_modules: Sequence[str] = ()
    ) -> None:
        self.folder, self.config, self.seeds = folder, config, seeds
        self._options = {n: value for n, value in asdict(config).items() if n != "seed"}
        # The environment of a sweep is named by the caller, or allowed.
        self._allowed = [*allow_modules, *modules_named([config.env, config.env_kwargs])]
        self.failed: dict[int, str] = {}
        self.stopped = False

    def run(self, jobs: int | None) -> dict[str, Any]:
        """Train what is not finished, and say what there is.

        A folder that is in use, or has runs with other options, is refused.
        """
        for seed in self.seeds:
            if (self._path(seed) / CONFIG).exists():
                self._check_same(read_run_config(self._path(seed)))
        lock = FolderLock(self.folder)
        write_atomically(self.folder / "options.json", json.dumps(self._options, indent=2) + "\n")
        try:
            self._train(jobs)
            return self._summarize()
        finally:
            lock.release()

    def _train(self, jobs: int | None) -> None:
        """A signal stops all processes, each with its checkpoint."""
        waiting = [seed for seed in self.seeds if not self._is_finished(seed)]
        if len(waiting) < len(self.seeds):
            _say(f"{len(self.seeds) - len(waiting)} of {len(self.seeds)} seeds finished before")
        running: dict[int, subprocess.Popen[bytes]] = {}
        limit = jobs or os.cpu_count() or 1
        with self._passing_signals_on(running):
            while running or (waiting and not self.stopped):
                while waiting and len(running) < limit and not self.stopped:
                    seed = waiting.pop(0)
                    running[seed] = self._start(seed)
                for seed in [seed for seed, one in running.items() if one.poll() is not None]:
                    self._end(seed, running.pop(seed).returncode)
                time.sleep(_POLL_SECONDS)

    def _summarize(self) -> dict[str, Any]:
        """Write summary.json and curves.png; returns what the former says."""
        import numpy as np

        from eligibility.train.curve import draw_groups
        from eligibility.train.record import read_groups
        from eligibility.train.statistics import interquartile_mean, interval

        done = [seed for seed in self.seeds if self._is_finished(seed)]
        results = {seed: read_result(self._path(seed)) for seed in done}
        summary: dict[str, Any] = {
            "config": self._options,
            "solved": sum(result.solved for result in results.values()),
            "finished": [{"seed": seed, **asdict(result)} for seed, result in results.items()],
            "failed": [{"seed": seed, "error": text} for seed, text in self.failed.items()],
        }
        if done:
            means = np.array([[result.mean_return] for result in results.values()])
            middle = interval(interquartile_mean, means, 0)
            seconds = [result.training_seconds for result in results.values()]
            summary |= {
                "mean_return": float(means.mean()),
                "interquartile_mean": middle.value,
                "interquartile_confidence_95": (middle.low, middle.high),
                "median_seconds": float(np.median(seconds)),
                "worst_seconds": max(seconds),
            }
            groups = read_groups([self._path(seed) for seed in done])
            picture = draw_groups(groups, "REINFORCE, mean return of the last 100 episodes")
            write_atomically(self.folder / "curves.png", picture)
        write_atomically(self.folder / "summary.json", json.dumps(summary, indent=2) + "\n")
        return summary

    def _path(self, seed: int) -> Path:
        return self.folder / f"seed-{seed}"

    def _check_same(self, found: Config) -> None:
        for field in fields(Config):
            got, wanted = getattr(found, field.name), getattr(self.config, field.name)
            if field.name not in ("seed", "steps", "threads") and got != wanted:
                raise InvalidValueError(
                    f"the folder `{self.folder}`",
                    f"runs with {field.name} {as_written(got)}",
                    f"none, or runs with {field.name} {as_written(wanted)}",
                    "choose another folder with --out",
                )

    def _is_finished(self, seed: int) -> bool:
        if not (self._path(seed) / RESULT).exists():
            return False
        result = read_result(self._path(seed))
        return result.solved or result.steps >= self.config.steps

    def _start(self, seed: int) -> subprocess.Popen[bytes]:
        """A separate process: its failure does not affect the others."""
        path, limits = self._path(seed), ["--steps", str(self.config.steps)]
        if (path / CONFIG).exists():
            what = ["--resume", str(path), *limits]
        else:
            options = str(self.folder / "options.json")
            what = ["--config", options, "--seed", str(seed), "--out", str(path)]
        what += [f"--allow-module={module}" for module in self._allowed]
        command = [sys.executable, "-m", "eligibility", "train", *what, "--json"]
        with self._log(seed).open("wb") as log:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def _log(self, seed: int) -> Path:
        return self.folder / f"seed-{seed}.log"

    def _end(self, seed: int, status: int) -> None:
        """Note how a process ended."""
        if self._is_finished(seed):
            result = read_result(self._path(seed))
            outcome = "solved" if result.solved else "not solved"
            _say(
                f"seed {seed}: {outcome}, mean return {result.mean_return:.1f}, "
                f"{result.training_seconds:.2f} s"
            )
            self._log(seed).unlink(missing_ok=True)
        elif self.stopped:
            _say(f"seed {seed}: stopped, to be resumed by the same command")
        else:
            lines = self._log(seed).read_text(encoding="utf-8", errors="replace").splitlines()
            last = lines[-1].removeprefix("error: ") if lines else "no message"
            self.failed[seed] = f"exit status {status}: {last}"
            _say(f"seed {seed}: failed with {self.failed[seed]}")

    @contextmanager
    def _passing_signals_on(self, running: dict[int, subprocess.Popen[bytes]]) -> Iterator[None]:
        """Ctrl-C and SIGTERM reach the processes, which stop after their rollout."""

        def pass_on(number: int, frame: object) -> None:
            self.stopped = True
            for process in running.values():
                process.send_signal(signal.SIGTERM)

        numbers = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, pass_on) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
