"""What is noted of the user's statements while a program runs."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from eligibility.audit.interception.statements import follow


def books(tensors: list[torch.Tensor]) -> Any:
    """What a recorder is to the follower."""
    return SimpleNamespace(
        made=[],
        steps=[],
        running=True,
        parameters=SimpleNamespace(tensors=tensors),
        job=SimpleNamespace(problem=None),
    )


def test_objects_that_lived_one_after_the_other_are_told_apart(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "for number in range(50):\n    rewards = []\n    rewards.append(number)\n    del rewards\n"
    )
    recorder = books([])
    with follow(recorder):
        runpy.run_path(str(program))
    lists = [made for made in recorder.made if made.place[1] == 3]
    assert [made.numbers for made in lists] == [(float(number),) for number in range(50)]
    assert len({made.identity for made in lists}) == 50


def test_each_number_tells_whether_it_carries_a_gradient_and_where_it_leads(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "def pair(x, y):\n    return [1.0, x * y]\n\nmade = pair(actor.exp(), critic + actor)\n"
    )
    actor, critic = torch.ones(2, requires_grad=True), torch.ones(1, requires_grad=True)
    recorder = books([actor, critic])
    names = {"actor": actor, "critic": critic[0], "__name__": "__main__"}
    with follow(recorder):
        exec(compile(program.read_text(), str(program), "exec"), names)
    found = [(one.place[1], one.name, one.attached, one.leads) for one in recorder.made]
    assert found == [
        (4, "arguments", (True, True, True, True), (0, 1)),
        (2, "return", (False, True, True), (0, 1)),
        (4, "made", (False, True, True), (0, 1)),
    ]
