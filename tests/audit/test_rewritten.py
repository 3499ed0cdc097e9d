"""A program's files are changed before they are compiled, also where they were compiled before."""

from __future__ import annotations

import ast
import builtins
import importlib
import py_compile
import sys
from pathlib import Path

import pytest

from eligibility.audit.patches import Patches
from eligibility.audit.rewritten import rewrite

NAME = "module_of_five"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module that has been compiled."""
    path = tmp_path / f"{NAME}.py"
    path.write_text("NUMBER = 5\n", encoding="utf-8")
    py_compile.compile(str(path))
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def number() -> int:
    sys.modules.pop(NAME, None)
    found: int = importlib.import_module(NAME).NUMBER
    del sys.modules[NAME]
    return found


def test_a_module_that_was_compiled_before_is_changed(folder: Path) -> None:
    files: list[str] = []

    def change(tree: ast.Module, file: str) -> ast.Module:
        files.append(file)
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and node.value == 5:
                node.value = 2
        return tree

    stock, patches = builtins.compile, Patches()
    rewrite(patches, change)
    try:
        assert number() == 2
        assert files == [str(folder / f"{NAME}.py")]
        assert ast.unparse(ast.parse("x = 5")) == "x = 5"  # what is only parsed stays
        assert eval(compile("5", "<a string>", "eval")) == 5
    finally:
        patches.close()
    assert number() == 5
    assert builtins.compile is stock
