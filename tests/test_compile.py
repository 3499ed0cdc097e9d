"""The operations and the distributions under torch.compile (see `tests.compiled`)."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from eligibility.ops.backends import cpu
from tests import compiled

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    command = [sys.executable, "-m", "tests.compiled"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=240)
    assert result.returncode == 0, result.stderr
    found: dict[str, str] = json.loads(result.stdout)
    return found


NATIVE = {*compiled.FUSED, "an action out of range"}


@pytest.mark.parametrize("name", compiled.cases())
def test_it_compiles_without_graph_breaks_to_the_same_numbers(
    outcomes: dict[str, str], name: str
) -> None:
    if name in NATIVE and not cpu.is_built():
        pytest.skip("the native kernel was not built")
    assert outcomes[name] == "", outcomes[name]


# What is not a function of its logits: a sample, or a gradient that was worked out beforehand; and
# what asks other processes.
NOT_TRACED = {
    "categorical_sample", "reinforce_gradient", "release_memory", "vocab_parallel_statistics",
    "vocab_parallel_linear_statistics",
}  # fmt: skip


def test_every_operation_is_compiled() -> None:
    page = (ROOT / "docs" / "reference" / "operations.md").read_text("utf-8")
    operations = set(re.findall(r"^::: [\w.]+\.([a-z_]+)$", page, re.MULTILINE))
    traced = set(re.findall(r"el\.(\w+)\(", Path(compiled.__file__).read_text("utf-8")))
    missing = operations - traced - NOT_TRACED
    assert not missing, f"add a case of {missing} to tests/compiled.py"
