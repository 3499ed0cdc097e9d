"""What the audit's parts refuse, and in which words."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
from dataclasses import astuple
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import eligibility as el
import eligibility.audit
from eligibility.audit import choices
from eligibility.audit.choices import Choices, PathComplete, TooManyChoicesError
from eligibility.audit.interception.compiler import _Postponed
from eligibility.audit.interception.surroundings import Inert, _InertModule
from eligibility.audit.job import SIZES, Job
from eligibility.audit.running.forkserver import WorkerError
from eligibility.audit.running.runner import ScriptRunner
from eligibility.audit.trace import Density, Draw, Step, parse_trace
from eligibility.errors import InvalidTypeError, InvalidValueError, MissingDependencyError
from eligibility.notebooks import script_of

_FORBIDDEN = """
import os, shutil, socket, subprocess, sys, pathlib
from eligibility.sandbox import COPY, confine
confine(pathlib.Path(sys.argv[1]), COPY, "an audited program")
inside, outside = sys.argv[1] + "/file", sys.argv[2]
open(inside, "w").close(); os.rename(inside, inside + "2"); os.remove(inside + "2")
open(os.devnull, "w").close()
for attempt in (
    lambda: open(outside, "w"), lambda: os.open(outside, os.O_RDWR), lambda: os.remove(outside),
    lambda: os.rename(outside, inside), lambda: shutil.rmtree(outside), lambda: os.fork(),
    lambda: subprocess.run(["true"]), lambda: socket.create_connection(("127.0.0.1", 9)),
):
    try:
        attempt()
    except PermissionError as error:
        print(str(error).split(" '")[0])
"""


def test_a_confined_process_reaches_its_folder_and_nothing_else(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.touch()
    done = subprocess.run(
        [sys.executable, "-c", _FORBIDDEN, str(inside), str(outside)],
        capture_output=True,
        text=True,
        check=True,
    )
    write, change = "an audited program may not write", "an audited program may not change"
    processes = "an audited program may not start or signal processes"
    assert done.stdout.splitlines() == [
        write, write, change, change, change, processes, processes,
        "an audited program has no network",
    ]  # fmt: skip
    assert outside.exists()


def test_choices_end_where_there_are_none_too_many_or_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ValueError, match=r"a distribution whose probabilities are \[0.0, 0.0\]"):
        Choices().choose([0.0, 0.0], "action")
    made = Choices(stop_after=1)
    made.choose([0.5, 0.5], "action")
    with pytest.raises(PathComplete):
        made.choose([0.5, 0.5], "action")
    made = Choices()
    made.closed = True
    with pytest.raises(PathComplete):
        made.choose([1.0], "environment")
    monkeypatch.setattr(choices, "MAX_CHOICES", 1)
    made = Choices()
    made.choose([1.0], "environment")
    with pytest.raises(TooManyChoicesError):
        made.choose_normal(0.0, 1.0)


_TRACE: dict[str, Any] = {
    "outcome": "updated", "detail": "", "file": "", "line": 0, "steps": [], "updates": [],
    "scores": [], "shapes": [[2, 3]], "notes": [], "facts": [], "known": 0, "made": [],
    "slopes": [],
    "draws": [["action", [0.5, 0.5], 1, None, None, None, None]],
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"outcome": 1}, "int instead of a string"),
        ({"notes": [None]}, "NoneType instead of a string"),
        ({"shapes": {}, "draws": [["action"]]}, "1 values for .*Draw"),
        ({"shapes": [{}]}, "dict in a record"),
        ({"facts": 3}, "'int' object is not iterable"),
    ],
)
def test_a_record_that_is_none_is_refused(changes: dict[str, Any], words: str) -> None:
    assert parse_trace(_TRACE).draws == (Draw("action", (0.5, 0.5), 1),)
    with pytest.raises(ValueError, match=f"not a trace: TypeError.*{words}"):
        parse_trace(_TRACE | changes)
    with pytest.raises(ValueError, match="not a trace: KeyError"):
        parse_trace({})


def test_what_stands_for_a_package_has_none_of_the_protocols_of_others() -> None:
    for name in ("__array__", "__index__"):
        assert not hasattr(Inert(), name)
    assert not hasattr(_InertModule("wandb"), "__path__")
    assert os.path.join(Inert().dir, "model.pt") == "./model.pt"
    width = Inert().get_width()
    assert all(isinstance(each, Inert) for each in (width + 5, 5 - width // 2, -width * 2.0))
    assert not hasattr(_Postponed("torch._dynamo"), "__wrapped__")


def test_a_worker_that_has_ended_is_said_to_have(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.touch()
    runner = ScriptRunner(path, (), 1.0, 64, False)
    os.kill(runner._worker.pid, signal.SIGKILL)
    with pytest.raises(WorkerError, match=r"an early exit \(no message\)"):
        runner.run(Job((), SIZES[-1]))
    runner.close()


def test_what_the_audit_needs_and_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=r"the audit: got no package `gymnasium`"):
        importlib.reload(eligibility.audit)


def test_a_notebook_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match="No such file or directory, expected a notebook"):
        script_of(tmp_path / "missing.ipynb")


def test_an_agent_without_the_method_that_was_named_is_refused() -> None:
    def learn(rewards: list[float]) -> None:
        pass

    with pytest.raises(InvalidTypeError, match="got no method `act`, expected methods that act"):
        el.audit_agent(lambda: SimpleNamespace(learn=learn), update="learn")
    with pytest.raises(InvalidTypeError, match="`module`: got function, expected"):
        el.audit_module(lambda states: states)
    with pytest.raises(InvalidValueError, match="`max_paths`: got 0, expected a whole number >= 1"):
        el.audit_loss(lambda log_prob, returns: -(log_prob * returns).sum(), max_paths=0)


def test_every_field_of_a_step_survives_its_way_through_json() -> None:
    step = Step(0, 0, 1, 2, 0.5, 3, True, False, ((1, 2), (3,)), (True, False), False, (1.0,))
    record = json.loads(json.dumps(astuple(step)))
    assert parse_trace(_TRACE | {"steps": [record]}).steps == (step,)


def test_a_density_survives_its_way_through_json() -> None:
    density = Density(-0.5, (0.1, -0.2), (0.3, 0.4))
    draw = Draw("action", (0.25, 0.5, 0.25, 0.0), 1, 1.5, 2.5, 0.4, density)
    record = json.loads(json.dumps(astuple(draw)))
    assert parse_trace(_TRACE | {"draws": [record]}).draws == (draw,)


_CONSOLE = """
import torch
import eligibility as el

class Agent:
    def __init__(self):
        self.net = torch.nn.Linear(4, 2)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.log_probs = []
    def act(self, observation):
        dist = torch.distributions.Categorical(logits=self.net(torch.as_tensor(observation)))
        action = dist.sample()
        self.log_probs.append(dist.log_prob(action))
        return int(action)
    def update(self, rewards):
        loss = -(torch.stack(self.log_probs) * sum(rewards)).sum()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.log_probs.clear()

print(el.audit_agent(Agent, discount=1.0, max_paths=40).verdict)
"""


def test_an_agent_that_was_typed_in_a_console_is_audited() -> None:
    done = subprocess.run([sys.executable, "-c", _CONSOLE], capture_output=True, text=True)
    assert done.stdout.splitlines() == ["unbiased"], done.stderr[-800:]


@pytest.mark.parametrize("error", ["KeyError", "KeyError(numpy.zeros(2))"])
def test_an_error_that_names_nothing_is_reported_as_it_is(error: str, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(f"import numpy\nraise {error}\n", encoding="utf-8")
    report = el.audit_script(path)
    assert report.verdict == "inconclusive"
    assert "could not be run (line 2): KeyError" in report.summary
