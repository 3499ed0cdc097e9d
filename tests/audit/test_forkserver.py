"""The process that forks a worker for every audit: loaded once, and without a memory."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from eligibility.audit.running import forkserver
from eligibility.audit.running.forkserver import WorkerError, close_servers, start_worker

MODULE = """
import json, os, sys
runs = []
def prepare():
    runs.append("prepare")
def main():
    for line in sys.stdin:
        runs.append(line.strip())
        facts = [os.getppid(), runs, os.getcwd(), os.environ.get("SEEN"), os.environ["HOME"]]
        print(json.dumps(facts), flush=True)
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a module that tells what it finds."""
    (tmp_path / "telling_worker.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    close_servers()
    yield "telling_worker"
    close_servers()


def told(module: str, scratch: Path, line: str) -> list[object]:
    with closing(start_worker(module, scratch)) as worker:
        worker.send(line)
        facts: list[object] = json.loads(worker.stdout.readline())
    return facts


def test_workers_of_one_process_share_what_was_loaded_and_nothing_else(
    tmp_path: Path, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent, runs, folder, seen, home = told(module, tmp_path, "first")
    assert (runs, folder, seen, home) == (["prepare", "first"], os.getcwd(), None, str(tmp_path))
    monkeypatch.setenv("SEEN", "yes")
    monkeypatch.chdir(tmp_path)
    again = told(module, tmp_path / "other", "second")
    assert again == [parent, ["prepare", "second"], str(tmp_path), "yes", str(tmp_path / "other")]


def test_a_server_that_has_died_is_replaced(tmp_path: Path, module: str) -> None:
    parent = told(module, tmp_path, "first")[0]
    (server,) = forkserver._servers.values()
    assert server._process.pid == parent
    os.kill(server._process.pid, signal.SIGKILL)
    server._process.wait()
    assert told(module, tmp_path, "second")[0] != parent


def test_the_time_of_workers_is_counted_as_the_callers(tmp_path: Path) -> None:
    (tmp_path / "works.py").write_text(
        "import time\ndef prepare(): ...\ndef main():\n    while time.process_time() < 0.5: pass\n",
        encoding="utf-8",
    )
    before = os.times()
    with closing(start_worker("works", tmp_path)) as worker:
        worker.stdout.read()
    close_servers()
    after = os.times()
    assert sum(after[2:4]) - sum(before[2:4]) > 0.4


def test_a_worker_that_does_not_end_is_ended(tmp_path: Path, module: str) -> None:
    (tmp_path / "stays.py").write_text(
        "import time\ndef prepare(): ...\ndef main(): print('here', flush=True); time.sleep(600)\n",
        encoding="utf-8",
    )
    worker = start_worker("stays", tmp_path)
    assert worker.stdout.readline() == "here\n"
    worker.close()
    deadline = time.monotonic() + 10  # its pipes close a moment before it is gone
    while _exists(worker.pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not _exists(worker.pid)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_module_that_cannot_be_loaded_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(WorkerError, match=r"an early exit \(ModuleNotFoundError.*no_such_worker"):
        start_worker("no_such_worker", tmp_path)


def test_an_interrupted_start_leaves_nothing_to_the_next_one(
    tmp_path: Path, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = told(module, tmp_path, "first")[0]
    (server,) = forkserver._servers.values()
    descriptors = len(os.listdir("/proc/self/fd"))

    class Interrupted:
        def __init__(self, link: object) -> None:
            self.link = link

        def __getattr__(self, name: str) -> object:
            return getattr(self.link, name)

        def recv(self, size: int) -> bytes:
            raise KeyboardInterrupt

    monkeypatch.setattr(server, "_link", Interrupted(server._link))
    with pytest.raises(KeyboardInterrupt):
        start_worker(module, tmp_path)
    assert len(os.listdir("/proc/self/fd")) == descriptors - 1  # the link itself is closed
    again = told(module, tmp_path, "second")
    assert again[0] != parent
    assert again[1] == ["prepare", "second"]
