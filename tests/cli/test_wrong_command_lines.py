"""Every wrong command line is answered by one line and exit status 2, and leaves nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.reliability.command_lines import LINES, fault_of, prepare


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
