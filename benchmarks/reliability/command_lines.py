"""Command lines that are wrong: one line and exit status 2 answer each, and nothing is left.

Typing errors, numbers out of range, options that contradict each other, files that are damaged,
deep, foreign, a pipe or a stranger's, places that cannot be written, pictures that cannot be made.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shlex
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.reliability.row import Row, row_of
from benchmarks.reliability.scratch import scratch_folder

TITLE = "Wrong command lines"
LINES = tuple(
    line
    for line in Path(__file__).with_name("command_lines.txt").read_text("utf-8").splitlines()
    if line and not line.startswith("#")
)


def run() -> Iterator[Row]:
    """A row for each verb."""
    verbs = dict.fromkeys(_verb(line) for line in LINES)
    with scratch_folder() as folder:
        prepare(folder)
        for verb in verbs:
            lines = [line for line in LINES if _verb(line) == verb]
            started = time.perf_counter()
            outcomes = [fault_of(line, folder) for line in lines]
            seconds = (time.perf_counter() - started) / len(lines)
            yield row_of(
                f"`{verb}`" if verb else "no such verb or option",
                'one line that begins with "error:", status 2, no file',
                outcomes,
                f"{1000 * seconds:.0f} ms each, once torch is loaded",
            )


def prepare(folder: Path) -> None:
    """What the lines name: a run, and everything that is none."""
    from eligibility.train.learner import Reinforce
    from eligibility.train.run_folder import RunFolder

    model = Reinforce("CartPole-v1", environments=4, hidden_sizes=(8,), steps=100)
    record = RunFolder(folder / "run", model)
    model.learn(callback=record)
    record.finish()
    deep = "[" * 200_000 + "]" * 200_000
    stranger = json.dumps({"env": "stranger:CartPole-v1"})
    for name, config in (("deep", deep), ("list", "[1]"), ("stranger", stranger)):
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(config)
        (folder / f"{name}.json").write_text(config)
    (folder / "cut").mkdir()
    (folder / "empty").mkdir()
    for file in ("config.json", "checkpoint.safetensors"):
        content = (folder / "run" / file).read_bytes()
        (folder / "cut" / file).write_bytes(content[:-9] if "check" in file else content)
    os.mkfifo(folder / "pipe")
    for name, text in (
        ("file", "no folder\n"),
        ("bad.yaml", "a: [1"),
        ("list.yaml", "- 1\n"),
        ("typo.yaml", "env: CartPole-v1\nlearning_rat: 1\n"),
        ("bad.toml", "= 1"),
        ("config.ini", "env = 1"),
        ("program.py", "print(1)\n"),
        ("stranger.py", "open('imported', 'w')\n"),
    ):
        (folder / name).write_text(text)
    (folder / "binary.json").write_bytes(bytes(range(256)))


def fault_of(line: str, folder: Path) -> str:
    """What is wrong with the answer to a line, given in ``folder``; empty: nothing."""
    from eligibility.cli.app import main

    before = _names(folder)
    output, errors = io.StringIO(), io.StringIO()
    status: object = None
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        try:
            main(shlex.split(line))
        except SystemExit as left:
            status = left.code
        except BaseException as error:  # anything but a clean exit is a finding
            return f"{line}: {type(error).__name__}: {error}"
    said = errors.getvalue()
    left = sorted(_names(folder) - before)
    if status != 2 or output.getvalue():
        return f"{line}: status {status}, output {output.getvalue()[:80]!r}, {said[-200:]!r}"
    if not said.startswith("error: ") or said.count("\n") != 1 or len(said) > 2000:
        return f"{line}: {said[:300]!r}"
    return f"{line}: left {', '.join(left)}" if left else ""


def _names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def _verb(line: str) -> str:
    first = line.split()[0]
    verbs = ("explain", "audit", "train", "sweep", "evaluate", "compare", "plot", "bench")
    return first if first in verbs else ""
