"""The package's front door: lazy, complete, and instant."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import eligibility


@pytest.mark.parametrize("name", [name for name in eligibility.__all__ if name != "__version__"])
def test_every_public_name_loads_and_is_documented(name: str) -> None:
    assert getattr(eligibility, name).__doc__


def test_unknown_name_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'eligibility' has no attribute 'nonsense'"):
        _ = eligibility.nonsense


@pytest.mark.parametrize(
    "statement",
    [
        "import eligibility",
        "from eligibility.cli.app import main; main(['--help'])",
        "from eligibility.cli.app import main; main(['--version'])",
    ],
)
def test_starting_imports_no_torch(statement: str) -> None:
    program = (
        "import sys, atexit\n"
        "atexit.register(lambda: print('LOADED', 'torch' in sys.modules, 'numpy' in sys.modules))\n"
        + statement
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip().splitlines()[-1] == "LOADED False False"


def test_who_cites_the_project_cites_this_version() -> None:
    citation = Path(__file__).parents[1].joinpath("CITATION.cff").read_text(encoding="utf-8")
    assert f"version: {eligibility.__version__}\n" in citation
