"""Programs that misbehave end with a verdict, and do nothing outside their scratch folder."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import pytest

import eligibility as el
from eligibility.audit.job import SIZES, Job
from eligibility.audit.running.execution import execute
from eligibility.audit.running.preloading import preload

START = "import gymnasium as gym\nenv = gym.make('CartPole-v1')\nenv.reset()\n"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("while True: pass", "more than the limit of 2 s"),
        ("data = []\nwhile True: data.append(bytearray(1 << 26))", "MemoryError"),
        ("import os; os._exit(3)", "os._exit, status 3"),
        ("import os; os.fork()", "may not start or signal processes"),
        ("import subprocess; subprocess.run(['true'])", "starts processes without"),
        ("import subprocess; subprocess.run(['not-there'])", "file `not-there`, which does not"),
        ("import ctypes; ctypes.string_at(0)", "ended by SIGSEGV"),
        ("import socket; socket.create_connection(('127.0.0.1', 9))", "has no network"),
        ("import gym_that_is_not_there", "No module named 'gym_that_is_not_there'"),
    ],
)
def test_a_misbehaving_program_is_inconclusive_and_says_why(
    tmp_path: Path, body: str, words: str
) -> None:
    path = tmp_path / "program.py"
    path.write_text(START + body, encoding="utf-8")
    started = time.monotonic()
    report = el.audit_script(path, time_limit=2, memory_limit=256)
    assert report.verdict == "inconclusive"
    assert words in report.summary
    assert time.monotonic() - started < 60


def test_a_program_writes_only_to_its_scratch_folder(tmp_path: Path) -> None:
    path, outside = tmp_path / "program.py", tmp_path / "outside.txt"
    path.write_text(f"open('inside.txt', 'w').close()\nopen({str(outside)!r}, 'w')")
    report = el.audit_script(path)
    assert "may not write" in report.summary
    assert [entry.name for entry in tmp_path.iterdir()] == ["program.py"]


def test_megabytes_of_output_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text("import os\nfor _ in range(50): os.write(1, b'x' * (1 << 20))\n")
    assert "no optimizer step" in el.audit_script(path).summary


def test_draws_that_the_audit_cannot_read_are_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(
        "import gymnasium as gym, torch\n"
        "net = torch.nn.Linear(4, 2)\n"
        "opt = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "env = gym.make('CartPole-v1')\n"
        "obs, _ = env.reset()\n"
        "p = net(torch.as_tensor(obs, dtype=torch.float32)).softmax(-1)\n"
        "import random\naction = int(random.Random(1).randrange(100) / 100 > p[0])\n"
        "_, reward, _, _, _ = env.step(action)\n"
        "(-reward * p[action].log()).backward()\n"
        "opt.step()\n"
    )
    report = el.audit_script(path)
    assert report.verdict == "inconclusive"
    assert "no action came from a random choice that the audit can read" in report.summary


def test_a_generator_can_be_made_from_whatever_numpy_takes() -> None:
    same = []

    def program() -> None:
        made = np.random.default_rng([1, 2])
        same.append(np.random.default_rng(made) is made)
        np.random.default_rng(np.random.RandomState(3)).random()
        np.random.default_rng(np.random.PCG64(4)).random()

    trace = execute(program, Job((), SIZES[0]))
    assert trace.outcome == "finished", trace.detail
    assert same == [True]


def test_what_a_program_imports_of_a_library_is_loaded_before_its_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("tool.parts", "tool.rest"):
        path = tmp_path / f"{module.replace('.', '/')}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text("def __getattr__(name):\n    asked.append(name)\nasked = []\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    program = tmp_path / "program.py"
    program.write_text(
        "import numpy\nfrom tool.parts import Collector\nfrom . import own\nfrom os import path"
    )
    preload(program, ("tool",))
    assert "Collector" in sys.modules["tool.parts"].asked  # parts may be loaded when asked for
    assert "tool.rest" not in sys.modules
    for name in ("tool", "tool.parts"):
        monkeypatch.delitem(sys.modules, name)
    program.write_text("this is no Python")
    preload(program, ("tool",))  # the program says so itself
