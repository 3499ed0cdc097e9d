"""The page of options is the config dataclass of today."""

from __future__ import annotations

import importlib.util
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "docs" / "train" / "options.py"


def test_the_page_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("options_page", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    shown = module.PAGE.read_text(encoding="utf-8")
    assert shown == module.page(), "run python docs/train/options.py"
