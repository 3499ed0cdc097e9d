"""The slow tests, of which a run takes one part in six, another part on another commit.

A test that is asked for by its file or its name is always run. To list the slow tests again:

scripts/test --slow all --junitxml=build/tests.xml
python -m tests.slow build/tests.xml   # writes tests/slow.txt
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest

LIST = Path(__file__).with_suffix(".txt")
PARTS = 6
_SLOW = 1.5  # seconds, on one of two busy cores


def add_option(parser: pytest.Parser) -> None:
    """``--slow``: which of them to run."""
    parser.addoption(
        "--slow",
        default="part",
        choices=["part", "all", "none"],
        help="of the tests in tests/slow.txt: one part in six, by the commit; all; or none",
    )


def leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect those that are for another commit."""
    which, known = config.getoption("--slow"), LIST.read_text("utf-8").splitlines()
    _check(config, known, items)
    if which == "all" or not all(_is_whole(argument) for argument in config.args):
        return
    here = set() if which == "none" else {*known[_number_of_commit(config.rootpath) :: PARTS]}
    out = [item for item in items if item.nodeid in {*known} - here]
    config.hook.pytest_deselected(items=out)
    items[:] = [item for item in items if item not in set(out)]


def _check(config: pytest.Config, known: list[str], items: list[pytest.Item]) -> None:
    """A name in the list that no test has is an old one."""
    gone = {*known} - {item.nodeid for item in items}
    if gone and config.args == config.getini("testpaths"):
        raise pytest.UsageError(
            f"tests/slow.txt names {len(gone)} tests that are not there, such as {min(gone)}; "
            "write it again, as tests/slow.py says"
        )


def _is_whole(argument: str) -> bool:
    """Whether an argument names a folder: a test that is asked for is run."""
    return Path(argument.partition("::")[0]).is_dir()


def _number_of_commit(root: Path) -> int:
    """The same number in every run of a commit; 0 outside of a repository."""
    asked = ["git", "rev-parse", "HEAD"]
    try:
        found = subprocess.run(asked, cwd=root, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return 0
    return int(found.stdout, 16) % PARTS


def _slow_tests(report: Path) -> list[str]:
    """Names of the slow tests, the slowest first."""
    seconds = {
        f"{case.attrib['classname'].replace('.', '/')}.py::{case.attrib['name']}": float(
            case.attrib["time"]
        )
        for case in ElementTree.parse(report).iter("testcase")
    }
    slow = [name for name, each in seconds.items() if each >= _SLOW and "\n" not in name]
    return sorted(slow, key=lambda name: -seconds[name])


def main(arguments: Sequence[str]) -> None:
    """Write the list, of a run of all tests."""
    (report,) = arguments
    LIST.write_text("".join(f"{name}\n" for name in _slow_tests(Path(report))), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
