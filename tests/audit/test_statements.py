"""What is noted of the user's statements while a program runs."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from eligibility.audit.interception.statements import follow


def test_objects_that_lived_one_after_the_other_are_told_apart(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "for number in range(50):\n    rewards = []\n    rewards.append(number)\n    del rewards\n"
    )
    recorder: Any = SimpleNamespace(made=[], steps=[], running=True)
    with follow(recorder):
        runpy.run_path(str(program))
    lists = [made for made in recorder.made if made.place[1] == 3]
    assert [made.numbers for made in lists] == [(float(number),) for number in range(50)]
    assert len({made.identity for made in lists}) == 50
