"""Every wrong command line is answered by one line and exit status 2, and leaves nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.reliability.command_lines import LINES, fault_of, prepare
from eligibility.cli import app
from tests.cli.conftest import Command


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the lines name: runs, damaged files, a pipe, a stranger's module."""
    folder = tmp_path_factory.mktemp("wrong")
    prepare(folder)
    return folder


def test_there_are_many() -> None:
    assert len({*LINES}) == len(LINES) >= 100


@pytest.mark.parametrize("line", LINES, ids=lambda line: line[:80])
def test_a_wrong_line_is_answered_in_one_line(
    line: str, prepared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(prepared)
    assert fault_of(line, prepared) == ""


def test_a_defect_of_ours_has_not_the_status_of_a_fault(
    eligibility: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit status 1 is what an audit says of a faulty program."""

    def defect(*arguments: object, **options: object) -> int:
        return 1 // 0

    monkeypatch.setattr(app, "app", defect)
    status, _, errors = eligibility("audit", "train.py")
    assert status == 2
    assert "ZeroDivisionError" in errors
    assert errors.endswith(
        "this is a defect of eligibility, please report it with the lines above\n"
    )
