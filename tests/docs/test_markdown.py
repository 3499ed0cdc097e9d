"""What the documentation shows is what the code does.

In README.md and every Markdown file of docs/, in one namespace a file and from top to bottom:

- a ``python`` block is executed; if the next block is ``text``, it is what the code prints;
- a ``python`` block with ``>>>`` prompts is a doctest;
- in a ``console`` block, a line ``$ eligibility …`` with lines below it is run, and they are what
  it prints. Commands that are shown without output are not run.

Outputs are compared as doctest compares them, with ELLIPSIS and NORMALIZE_WHITESPACE.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import itertools
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FILES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
FENCE = re.compile(
    r"^```(?P<language>\w*)[^\n]*\n(?P<body>.*?)^```$", flags=re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, its text, and the number of its first line."""

    language: str
    body: str
    line: int


def blocks_of(text: str) -> list[Block]:
    """The fenced blocks of a Markdown text, in order."""
    return [
        Block(match["language"], match["body"], text.count("\n", 0, match.start("body")) + 1)
        for match in FENCE.finditer(text)
    ]


def check_markdown(path: Path, scratch: Path) -> None:
    """Execute the blocks of ``path`` in ``scratch``; AssertionError where an output differs."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    blocks = blocks_of(path.read_text(encoding="utf-8"))
    for block, following in itertools.pairwise([*blocks, Block("", "", 0)]):
        where = f"{path.name}, line {block.line}"
        if block.language == "python" and ">>>" in block.body:
            with working_in(scratch):
                run_doctest(block, namespace, path)
        elif block.language == "python":
            printed = run_python(block, namespace, path, scratch)
            wanted = following.body if following.language == "text" else ""
            assert_same_output(wanted, printed, where)
        elif block.language == "console":
            for command, wanted in commands_of(block):
                assert_same_output(wanted, run_command(command, scratch), f"{where}: {command}")


@contextlib.contextmanager
def working_in(folder: Path) -> Iterator[None]:
    """Files that a page writes are there for its next block, and nowhere else."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def run_python(block: Block, namespace: dict[str, Any], path: Path, scratch: Path) -> str:
    # The leading newlines give tracebacks and source look-ups the line numbers of the file.
    code = compile("\n" * (block.line - 1) + block.body, str(path), "exec")
    with working_in(scratch), contextlib.redirect_stdout(io.StringIO()) as stdout:
        exec(code, namespace)
    return stdout.getvalue()


def run_doctest(block: Block, namespace: dict[str, Any], path: Path) -> None:
    test = doctest.DocTestParser().get_doctest(
        block.body, namespace, path.name, str(path), block.line - 1
    )
    report = io.StringIO()
    runner = doctest.DocTestRunner(optionflags=OPTIONS, verbose=False)
    runner.run(test, out=report.write, clear_globs=False)
    namespace.update(test.globs)
    assert not runner.failures, report.getvalue()


def commands_of(block: Block) -> list[tuple[str, str]]:
    """The commands of a console block that are shown with their output."""
    parts = re.split(r"^\$ ", block.body, flags=re.MULTILINE)[1:]
    shown = [(command, output) for command, _, output in (part.partition("\n") for part in parts)]
    return [(c, output) for c, output in shown if c.startswith("eligibility ") and output.strip()]


def run_command(command: str, scratch: Path) -> str:
    finished = subprocess.run(
        [sys.executable, "-m", *shlex.split(command)],
        cwd=scratch,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src"), "COLUMNS": "80"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return finished.stdout + finished.stderr


def assert_same_output(wanted: str, got: str, where: str) -> None:
    # The width of a table is white space too, and the line under its head as long as it is wide.
    wanted, got = (re.sub("─+", "─", text) for text in (wanted, got))
    if not doctest.OutputChecker().check_output(wanted, got, OPTIONS):
        difference = doctest.OutputChecker().output_difference(
            doctest.Example("", wanted), got, OPTIONS
        )
        raise AssertionError(f"{where}\n{difference}")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_code_in_markdown_prints_what_is_shown(path: Path, tmp_path: Path) -> None:
    check_markdown(path, tmp_path)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_relative_links_and_images_exist(path: Path) -> None:
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    targets = re.findall(r"\]\(([^)\s#]+)[^)]*\)", text)
    missing = [t for t in targets if "://" not in t and not (path.parent / t).exists()]
    assert not missing


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_within_a_file_lead_to_a_heading(path: Path) -> None:
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    # GitHub keeps letters, digits, hyphens and underscores of a heading, and joins with hyphens.
    anchors = {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}
    assert set(re.findall(r"\]\(#([^)]+)\)", text)) <= anchors


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("```python\nprint(1 + 1)\n```\n\n```text\n3\n```\n", "line 2"),
        ("```python\nprint(1)\n```\n", "line 2"),
        ("```python\n>>> 1 + 1\n3\n```\n", "line 2, in wrong.md"),
        ("```console\n$ eligibility --version\neligibility 99\n```\n", "eligibility --version"),
    ],
    ids=["text block", "output not shown", "doctest", "console"],
)
def test_a_wrong_output_is_found(body: str, message: str, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.md"
    wrong.write_text(body, encoding="utf-8")
    with pytest.raises(AssertionError, match=re.escape(message)):
        check_markdown(wrong, tmp_path)


def test_blocks_of_one_file_share_a_namespace(tmp_path: Path) -> None:
    right = tmp_path / "right.md"
    right.write_text(
        "```python\nx = 2\n```\n```python\n>>> y = x + 1\n>>> y\n3\n```\n"
        "```python\nprint(y)\n```\nwhich prints\n```text\n3\n```\n",
        encoding="utf-8",
    )
    check_markdown(right, tmp_path)
