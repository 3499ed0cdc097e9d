"""The command line in this process: what a process of its own would only make slower."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from eligibility.cli.app import main

ROOT = Path(__file__).parents[2]
Command = Callable[..., tuple[int | str | None, str, str]]


@pytest.fixture
def eligibility(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Command:
    """``eligibility ARGUMENTS`` in ``tmp_path``: exit status, standard output, standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}{os.pathsep}{ROOT}")  # for its own children

    def command(*arguments: str) -> tuple[int | str | None, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main([*arguments])
        output = capsys.readouterr()
        return left.value.code, output.out, output.err

    return command
