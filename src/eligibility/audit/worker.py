"""The child process: it has torch loaded, and forks once for every run of the user's program.

A fork costs milliseconds and starts every run from the same clean state, whatever the last one did
to modules, files or the interpreter. Jobs come as JSON lines on standard input, results go as JSON
lines to the standard output that was there at the start.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import runpy
import select
import signal
import sys
import time
from contextlib import suppress
from dataclasses import asdict, astuple, dataclass, fields
from pathlib import Path
from typing import Any

import torch._dynamo  # optimizers import it on first use: once here, not once a run

from eligibility.audit import sandbox
from eligibility.audit.execution import execute
from eligibility.audit.probe import ProbeSize
from eligibility.audit.recorder import Job
from eligibility.audit.trace import Trace

MAX_RESULT_BYTES = 64 << 20
_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Program:
    """The script and its limits.

    Attributes:
        path: The script.
        arguments: Its command line.
        scratch: The folder it runs in.
        seconds: Time limit of one run.
        megabytes: Memory limit of one run.
        four_tuple: Whether it speaks the interface of gym before 0.26.
    """

    path: str
    arguments: tuple[str, ...]
    scratch: str
    seconds: float
    megabytes: int
    four_tuple: bool


def encode(trace: Trace) -> str:
    """A trace as JSON; the records inside as lists of their fields."""
    data = {field.name: getattr(trace, field.name) for field in fields(trace)}
    for name in ("draws", "steps", "updates", "scores"):
        data[name] = [astuple(record) for record in data[name]]
    return json.dumps(data)


def encode_job(job: Job) -> str:
    """A job as one line of JSON."""
    return json.dumps(asdict(job))


def decode_job(line: str) -> Job:
    """The job in a line of JSON."""
    data = json.loads(line)
    data["size"] = ProbeSize(**data["size"])
    data["prescribed"] = tuple(data["prescribed"])
    return Job(**data)


def main() -> None:
    """Serve jobs until standard input ends."""
    results = os.fdopen(os.dup(1), "w", encoding="utf-8")
    jobs = os.fdopen(os.dup(0), "r", encoding="utf-8")
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    settings = json.loads(jobs.readline())
    program = Program(**settings | {"arguments": tuple(settings["arguments"])})
    torch.set_num_threads(1)
    with suppress(OSError, AttributeError):
        # orphans of a run become our children, so that they can be found and ended
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    gc.collect()
    gc.freeze()
    print("ready", file=results, flush=True)
    for line in jobs:
        print(_run_forked(program, decode_job(line)), file=results, flush=True)


def _run_forked(program: Program, job: Job) -> str:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _run_and_exit(program, job, writing)
    os.close(writing)
    with suppress(OSError):
        os.setpgid(child, child)
    data, in_time = _read_all(reading, time.monotonic() + program.seconds)
    os.close(reading)
    with suppress(OSError):
        os.killpg(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    _end_orphans()
    return _answer(data, in_time, status, program)


def _run_and_exit(program: Program, job: Job, writing: int) -> None:
    """In the fork: run the script, send its trace, and leave without any cleaning up."""
    status = 1
    try:
        os.setpgid(0, 0)
        sys.argv = [program.path, *program.arguments]
        sys.path.insert(0, str(Path(program.path).parent))
        sys.dont_write_bytecode = True
        os.chdir(program.scratch)
        sandbox.limit(program.seconds, program.megabytes)
        sandbox.confine(Path(program.scratch))
        trace = execute(
            lambda: runpy.run_path(program.path, run_name="__main__"),
            job,
            four_tuple=program.four_tuple,
        )
        with os.fdopen(writing, "w", encoding="utf-8") as pipe:
            pipe.write(encode(trace))
        status = 0
    finally:
        os._exit(status)


def _read_all(descriptor: int, deadline: float) -> tuple[bytes, bool]:
    """Everything up to the end of the pipe, and whether that came before the deadline."""
    chunks: list[bytes] = []
    size = 0
    while size < MAX_RESULT_BYTES:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([descriptor], [], [], left)[0]:
            return b"".join(chunks), False
        chunk = os.read(descriptor, 1 << 16)
        if not chunk:
            return b"".join(chunks), True
        chunks.append(chunk)
        size += len(chunk)
    return b"", True


def _end_orphans() -> None:
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    with suppress(OSError):
        for orphan in children.read_text(encoding="ascii").split():
            os.kill(int(orphan), signal.SIGKILL)
            os.waitpid(int(orphan), 0)


def _answer(data: bytes, in_time: bool, status: int, program: Program) -> str:
    with suppress(ValueError):
        if data and in_time:
            json.loads(data)
            return data.decode("utf-8")
    if not in_time or (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU):
        return _failure("time", f"one run took longer than the limit of {program.seconds:g} s")
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        return _failure("killed", f"the program's process was ended by {name}")
    code = os.waitstatus_to_exitcode(status)
    return _failure("exited", f"the program ended its process (os._exit, status {code})")


def _failure(outcome: str, detail: str) -> str:
    return encode(Trace(outcome, detail))


def settings_line(program: Program) -> str:
    """The first line that a worker reads."""
    data: dict[str, Any] = asdict(program)
    return json.dumps(data)


if __name__ == "__main__":
    main()
