"""The child process: it has torch loaded, and forks once for every run of the user's program.

A fork costs milliseconds and starts every run from the same clean state, whatever the last one did
to modules, files or the interpreter. Jobs come as JSON lines on standard input, results go as JSON
lines to the standard output that was there at the start.

A lane is a fork of this process that runs jobs of its own at the same time, with pipes and a home
of its own. One is opened by a line that says so, after the first run has told what to import.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Set
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import gymnasium
import torch

from eligibility.audit.interception.compiler import postpone_compiler
from eligibility.audit.interception.language import notice_language
from eligibility.audit.job import OPEN_LANE, SIZES, Job, Program, decode_job, decode_program
from eligibility.audit.running.execution import execute
from eligibility.audit.running.forkserver import environment_in
from eligibility.audit.running.place import run_program, settle_in, workspace_of
from eligibility.audit.running.preloading import installed, load, preload
from eligibility.audit.running.smaller import shrink
from eligibility.audit.side_by_side import die_with_parent
from eligibility.audit.trace import Trace, encode_trace
from eligibility.sandbox import Workspace, limit

MAX_RESULT_BYTES = 64 << 20
_SET_CHILD_SUBREAPER = 36
_WAITING = 10  # times the processor's time: as long may a run take on a machine with other work


def prepare() -> None:
    """What every program needs: once for all of them."""
    importlib.import_module("resource")  # which sets the limits of every run
    postpone_compiler()
    torch.set_num_threads(1)
    _warm_up()


def main(*lanes: int) -> None:
    """Serve jobs until standard input ends."""
    results = os.fdopen(os.dup(1), "w", encoding="utf-8")
    jobs = os.fdopen(os.dup(0), "r", encoding="utf-8")
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    program = decode_program(jobs.readline())
    preload(Path(program.path))
    gc.collect()
    gc.freeze()
    print("ready", file=results, flush=True)
    _serve(program, jobs, results, lanes, set(sys.modules))


def _serve(
    program: Program, jobs: TextIO, results: TextIO, pipes: tuple[int, ...], before: Set[str]
) -> None:
    """Run one job after the other, in a workspace of this process."""
    with suppress(OSError, AttributeError):
        # orphans of a run become our children, so that they can be found and ended
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    workspace = workspace_of(program)
    lanes: set[int] = set()
    for line in jobs:
        private = (results.fileno(), jobs.fileno(), *pipes)
        if line.strip() == OPEN_LANE:
            lanes.add(_open_lane(program, len(lanes), private))
            for descriptor in pipes[:2]:
                os.close(descriptor)
            pipes = pipes[2:]
            continue
        answer, imported = _run_forked(program, workspace, decode_job(line), private, before, lanes)
        print(answer, file=results, flush=True)
        workspace.restore()
        if before:
            load(imported)
            before = set()
            gc.collect()
            gc.freeze()
    for lane in lanes:
        os.waitpid(lane, 0)


def _open_lane(program: Program, number: int, private: tuple[int, ...]) -> int:
    """Fork a lane, whose pipes are the first of those behind ours, and whose home is new."""
    lane = os.fork()
    if lane:
        return lane
    reading, writing = private[2:4]
    for descriptor in {*private} - {reading, writing}:
        os.close(descriptor)
    try:
        die_with_parent()
        scratch = Path(program.scratch, f"lane{number}")
        scratch.mkdir(exist_ok=True)
        os.environ.update(environment_in(str(scratch)))
        with (
            os.fdopen(reading, encoding="utf-8") as jobs,
            os.fdopen(writing, "w", encoding="utf-8") as results,
        ):
            _serve(replace(program, scratch=str(scratch)), jobs, results, (), set())
    finally:
        os._exit(0)


def _warm_up() -> None:
    """One run of a tiny program here: what libraries do at first use is done once, not in a run."""

    def tiny() -> None:
        environment: Any = gymnasium.make("CartPole-v1")
        net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
        optimizer = torch.optim.Adam(net.parameters())
        observation, _ = environment.reset(seed=0)
        dist: Any = torch.distributions.Categorical(logits=net(torch.as_tensor(observation)))
        action = dist.sample()
        environment.step(action.item())
        loss = -dist.log_prob(action).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    execute(tiny, Job((), SIZES[-1]))


def _run_forked(
    program: Program,
    workspace: Workspace,
    job: Job,
    private: tuple[int, ...],
    before: Set[str],
    lanes: Set[int],
) -> tuple[str, list[str]]:
    """The trace of a run, and what it imported that was not there ``before``, if that is known."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        for descriptor in (reading, *private):
            os.close(descriptor)
        _run_and_exit(program, workspace, job, writing, before)
    os.close(writing)
    with suppress(OSError):
        os.setpgid(child, child)
    data, in_time = _read_all(reading, time.monotonic() + _WAITING * program.seconds)
    os.close(reading)
    with suppress(OSError):
        os.killpg(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    _end_orphans(lanes)
    trace, _, names = data.partition(b"\n")
    return _answer(trace, in_time, status, program), names.decode().split()


def _run_and_exit(
    program: Program, workspace: Workspace, job: Job, writing: int, before: Set[str]
) -> None:
    """In the fork: run the script, send its trace, and leave without any cleaning up."""
    status = 1
    try:
        os.setpgid(0, 0)
        die_with_parent()
        limit(program.seconds, program.megabytes)
        settle_in(program, workspace)
        notice_language(Path(program.origin))
        shrink(job.smaller)
        trace = execute(lambda: run_program(Path(program.path)), job, four_tuple=program.four_tuple)
        with os.fdopen(writing, "w", encoding="utf-8") as pipe:
            pipe.write(encode_trace(trace) + "\n")
            pipe.write(" ".join(installed(before) if before else ()))
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


def _end_orphans(lanes: Set[int]) -> None:
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    with suppress(OSError):
        for orphan in {*map(int, children.read_text(encoding="ascii").split())} - lanes:
            os.kill(orphan, signal.SIGKILL)
            os.waitpid(orphan, 0)


def _answer(data: bytes, in_time: bool, status: int, program: Program) -> str:
    with suppress(ValueError):
        if data and in_time:
            json.loads(data)
            return data.decode("utf-8")
    code, seconds = os.waitstatus_to_exitcode(status), program.seconds
    if code == -signal.SIGXCPU:
        failed = "time", f"one run used more than the limit of {seconds:g} s of processor time"
    elif not in_time:
        waited = f"{_WAITING * seconds:g} s"
        failed = "time", f"one run was still waiting for something after {waited}"
    elif code < 0:
        failed = "killed", f"the program's process was ended by {signal.Signals(-code).name}"
    else:
        failed = "exited", f"the program ended its process (os._exit, status {code})"
    return encode_trace(Trace(*failed))
