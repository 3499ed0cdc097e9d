"""The table of estimators shows what the trainer's estimators are today."""

from __future__ import annotations

import importlib.util
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "docs" / "train" / "estimators.py"


def test_the_page_is_up_to_date() -> None:
    """The texts as a whole, and one line computed anew: all of them take minutes."""
    spec = importlib.util.spec_from_file_location("estimators_page", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    shown = module.PAGE.read_text(encoding="utf-8")
    assert shown.startswith(module.HEAD)
    assert shown.endswith(module.TAIL)
    table = shown.removeprefix(module.HEAD).removesuffix(module.TAIL).splitlines()
    assert [line.split(" | ")[0].removeprefix("| ") for line in table if line] == [*module.ROWS]
    assert module.row("moving-average", module.ROWS["moving-average"]) in table
