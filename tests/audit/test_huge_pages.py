"""A process that forks often has its memory in large pages, where the machine has such pages."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

_COUNT = """
import ctypes
from eligibility.audit.running import huge_pages

def huge():
    with open("/proc/self/smaps_rollup") as counts:
        return sum(int(line.split()[1]) for line in counts if line.startswith("AnonHugePages"))

kept = [[number] for number in range(1_000_000)]
before = huge()
huge_pages.collapse()
print(huge() - before, sum(number for (number,) in kept))
"""


def _collapses() -> bool:
    release = platform.release().split(".")
    enabled = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    new = sys.platform == "linux" and tuple(map(int, release[:2])) >= (6, 1)
    return new and enabled.exists() and "[never]" not in enabled.read_text()


@pytest.mark.skipif(not _collapses(), reason="this kernel puts no pages together")
def test_what_python_has_allocated_is_put_together() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _COUNT], capture_output=True, text=True, check=True
    )
    kilobytes, total = map(int, done.stdout.split())
    assert kilobytes > 10_000, done.stdout
    assert total == sum(range(1_000_000))
