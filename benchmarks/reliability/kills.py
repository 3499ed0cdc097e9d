"""Training processes that are killed, on disks that are whole, full or slow, and go on.

What a run leaves must not depend on how often it was killed. A training is killed by SIGKILL, the
command is given again, with ``--resume`` once the folder has a config, and so on until it ends; its
config, curve, checkpoint and picture must then be byte for byte those of a run that never stopped,
and no temporary file may be left. Checkpoints are written after every rollout, so that most moments
are those of a write. A moment that is drawn may come after the end of a run; so it is asked what
ended the process, and the last column says how many were killed. At least 50 must be.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.reliability.row import Row, row_of
from benchmarks.reliability.scratch import forked, scratch_folder, small_disk, wait

TITLE = "Killed, and two at once"
TRAIN = [
    "train", "CartPole-v1", "--environments", "4", "--steps", "600", "--stop-at", "inf",
    "--baseline", "moving-average", "--hidden-sizes", "16",
]  # fmt: skip
SAME = ("config.json", "curve.csv", "checkpoint.safetensors", "curve.png")
_SLOW_SECONDS = 0.02
_DEADLINE = 120.0
_LEAST_KILLS = 50

Moment = Callable[[Path], bool]


SAME_FILES = "the same files, byte for byte, as a run that never stopped"


def run() -> Iterator[Row]:
    """The rows of this part."""
    # Imported once, here, so that no fork spends its life on importing them.
    import matplotlib.backends.backend_agg  # noqa: F401  # the forks share it
    import torch

    import eligibility.train.curve
    import eligibility.train.run_folder  # noqa: F401  # the forks share it

    torch.set_num_threads(1)
    dice = random.Random(20261122)
    with scratch_folder() as folder:
        whole = folder / "whole"
        started = time.perf_counter()
        _finish(whole, folder / "log")
        seconds = time.perf_counter() - started

        kills: list[int] = []

        def killed(attack: str, times: int, *chances: Callable[[], Moment], **how: bool) -> Row:
            runs, before = ([chance() for chance in chances] for _ in range(times)), len(kills)
            outcomes = [_killed(folder, whole, run, kills, **how) for run in runs]
            return row_of(attack, SAME_FILES, outcomes, _met(len(kills) - before))

        def early() -> Moment:
            return _after(dice.uniform(0, seconds))

        yield killed("kill -9 at a random moment", 20, early)
        yield killed(
            "kill -9 once config.json is there, and before the first checkpoint",
            8,
            lambda: _exists("config.json"),
            no_save=True,
        )
        yield killed("kill -9 in the middle of writing a file", 8, lambda: _exists(".*.partial"))
        yield killed(
            "kill -9 after the curve and before its checkpoint",
            6,
            lambda: _curve_is_newer,
            slow=True,
        )
        yield killed("kill -9, five times in one run", 2, early, early, early, early, early)
        yield killed(
            f"kill -9 on a slow disk: {1000 * _SLOW_SECONDS:.0f} ms more for each flush and rename",
            8,
            lambda: _after(dice.uniform(0, 3 * seconds)),
            slow=True,
        )
        yield _full_disk(folder, whole, dice, kills)
        yield row_of(
            "all these kills",
            f"at least {_LEAST_KILLS} end a process",
            [f"only {len(kills)} did" if len(kills) < _LEAST_KILLS else ""],
            _met(len(kills)),
        )
        yield row_of(
            "two processes at once with one --out",
            "one trains and ends well; the other has one line and exit status 2",
            [_two_at_once(folder, whole) for _ in range(6)],
        )


def _met(kills: int) -> str:
    return f"{kills} processes were killed"


def _killed(
    folder: Path,
    whole: Path,
    moments: list[Moment],
    kills: list[int],
    slow: bool = False,
    no_save: bool = False,
) -> str:
    """What is wrong after a run that was killed at these moments; empty: nothing.

    ``kills`` gets the ids of the processes that a kill ended.
    """
    path, log = folder / "killed", folder / "log"
    change = _slow if slow else _never_saving if no_save else lambda: None
    for moment in moments:
        child = forked(lambda: _train(path, change), log)
        deadline = time.monotonic() + _DEADLINE
        while not moment(path) and not _ended(child):
            if time.monotonic() > deadline:
                _kill(child)
                return "the moment never came"
        if _kill(child) == -signal.SIGKILL:
            kills.append(child)
    return _finish(path, log) or _compare_and_remove(path, whole)


def _kill(child: int) -> int:
    """Kill a child that may have ended; what ended it."""
    os.kill(child, signal.SIGKILL)  # nobody has waited for it: its id is still its own
    return wait(child)


def _train(path: Path, change: Callable[[], None]) -> None:
    """The command as one gives it again after a failure."""
    from eligibility.cli.app import main
    from eligibility.train import run_folder

    run_folder._SECONDS_BETWEEN_CHECKPOINTS = -1.0
    change()
    begun = (path / "config.json").exists()
    main(["train", "--resume", str(path)] if begun else [*TRAIN, "--out", str(path)])


def _finish(path: Path, log: Path) -> str:
    status = wait(forked(lambda: _train(path, lambda: None), log))
    return "" if status == 0 else f"exit status {status}: {_last_line(log)}"


def _compare_and_remove(path: Path, whole: Path) -> str:
    different = [name for name in SAME if (path / name).read_bytes() != (whole / name).read_bytes()]
    left = [file.name for file in path.glob(".*.partial")]
    for file in path.iterdir():
        file.unlink()
    path.rmdir()
    if different:
        return "different: " + ", ".join(different)
    return "left behind: " + ", ".join(left) if left else ""


def _full_disk(folder: Path, whole: Path, dice: random.Random, kills: list[int]) -> Row:
    """The row of runs on a disk without space: killed there, or ended by its error; then freed."""
    attack = "a full disk (a tmpfs that is filled up at a random moment), and kill -9 there"
    expected = "no traceback; with space again, the same files as a run that never stopped"
    with small_disk(folder / "disk", 1024) as disk:
        if disk is None:
            return Row(attack, 0, 0, expected, note="not run: this user may not mount a disk")
        outcomes, before = [], len(kills)
        for number in range(12):
            path, log = disk / "run", folder / "log"
            child = forked(lambda path=path: _train(path, lambda: None), log)
            time.sleep(dice.uniform(0.05, 1.0))
            _fill(disk / "filler")
            if number % 2:
                time.sleep(dice.uniform(0, 0.2))
            status = _kill(child) if number % 2 else wait(child)
            if status == -signal.SIGKILL:
                kills.append(child)
            said = _last_line(log)
            (disk / "filler").unlink(missing_ok=True)
            fits = status in (0, -signal.SIGKILL) or (
                status == 2 and "No space left on device" in said
            )
            wrong = "" if fits else f"exit status {status}: {said}"
            outcomes.append(wrong or _finish(path, log) or _compare_and_remove(path, whole))
        return row_of(attack, expected, outcomes, _met(len(kills) - before))


def _fill(path: Path) -> None:
    block = b"\0" * 4096
    try:
        with path.open("wb", buffering=0) as file:
            while True:
                file.write(block)
    except OSError:
        pass


def _two_at_once(folder: Path, whole: Path) -> str:
    path = folder / "shared"
    logs = [folder / "log-a", folder / "log-b"]
    children = [
        forked(lambda: _both(path), logs[0]),
        forked(lambda: _both(path), logs[1]),
    ]
    statuses = [wait(child) for child in children]
    if sorted(statuses) != [0, 2]:
        return f"exit statuses {statuses}: {_last_line(logs[0])} | {_last_line(logs[1])}"
    refused = logs[statuses.index(2)].read_text()
    if refused.count("\n") != 1 or not refused.startswith("error: the "):
        return f"it said {refused!r}"
    return _compare_and_remove(path, whole)


def _both(path: Path) -> None:
    from eligibility.cli.app import main

    main([*TRAIN, "--out", str(path)])


def _after(seconds: float) -> Moment:
    """So many seconds after it is first asked for."""
    started: list[float] = []

    def moment(path: Path) -> bool:
        started.append(time.monotonic())
        time.sleep(0.001)
        return started[-1] - started[0] >= seconds

    return moment


def _exists(pattern: str) -> Moment:
    return lambda path: any(path.glob(pattern))


def _curve_is_newer(path: Path) -> bool:
    """Whether the curve was written again and the checkpoint not yet."""
    try:
        curve = (path / "curve.csv").stat().st_mtime_ns
        return curve > (path / "checkpoint.safetensors").stat().st_mtime_ns
    except OSError:
        return False


def _slow() -> None:
    """Make each flush and each rename of this process take longer."""
    for name in ("fsync", "replace"):
        quick = getattr(os, name)

        def slow(*arguments: object, quick: Callable[..., object] = quick) -> object:
            time.sleep(_SLOW_SECONDS)
            return quick(*arguments)

        setattr(os, name, slow)


def _never_saving() -> None:
    from eligibility.train import run_folder

    run_folder._SECONDS_BETWEEN_CHECKPOINTS = float("inf")


def _ended(child: int) -> bool:
    """Whether a child has ended; it can still be waited for."""
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return lines[-1] if lines else "nothing said"
