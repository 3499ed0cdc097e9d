"""Nothing outside the scratch folder is written or deleted, whatever a script does."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import eligibility as el
from eligibility.audit.job import SIZES, Job
from eligibility.audit.running.runner import ScriptRunner
from eligibility.explanation.script import explain_script
from eligibility.sandbox import COPY, GUARDS, LANDLOCK, NAMESPACE, guard_here, guards
from tests.attack.hostile import ATTACKS, Attack, harmed, run_under, unguarded

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the guards are Linux's")


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
@pytest.mark.parametrize("guard", [LANDLOCK, NAMESPACE, COPY])
def test_a_guard_holds_alone(guard: str, attack: Attack) -> None:
    if guard != COPY and not guards.works(guard):
        pytest.skip(f"this kernel has no {guard}")
    if guard == COPY and attack.native:
        pytest.skip("native code is held by the kernel only, and the report says so")
    assert harmed(attack, run_under(guard)) == []


def test_the_attacks_are_attacks() -> None:
    # those that a mount or a socket's name may forbid on some machines are the only ones left out
    harmless = {
        attack.name for attack in ATTACKS if "mount" not in attack.name
        and not harmed(attack, unguarded)
    }  # fmt: skip
    assert harmless == set()


SAMPLE = ("safetensors by a relative name", "sqlite3 in its own folder", "native unlink")


@pytest.mark.parametrize("attack", [a for a in ATTACKS if a.name in SAMPLE], ids=lambda a: a.name)
@pytest.mark.parametrize("through", [el.audit_script, explain_script])
def test_a_hostile_script_harms_nothing(attack: Attack, through: Callable[[Path], Any]) -> None:
    if guard_here() == COPY and attack.native:
        pytest.skip("this kernel has no guard")
    assert harmed(attack, through) == []


def test_a_report_says_what_held_the_writes(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text("import torch\ntorch.ones(1, requires_grad=True).sum().backward()\n")
    assert el.audit_script(path).guard == guard_here()
    assert explain_script(path).guard == guard_here()
    assert guard_here() in GUARDS


def test_each_run_of_a_script_finds_its_folder_as_the_user_left_it(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "best.txt").write_text("1.5", encoding="utf-8")
    path.write_text(
        "from pathlib import Path\n"
        "best = Path('data/best.txt')\n"
        "assert best.read_text() == '1.5' and not Path('new').exists()\n"
        "best.write_text('2.5'); Path('new').mkdir()\n",
        encoding="utf-8",
    )
    with ScriptRunner(path, (), 20, 2048, False) as runner:
        for _ in range(3):
            trace = runner.run(Job((), SIZES[0]))
            assert trace.outcome == "finished", trace.detail
    assert (tmp_path / "data" / "best.txt").read_text(encoding="utf-8") == "1.5"
