"""Errors say what, got, expected and remedy, and survive a trip between processes."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from eligibility import errors
from tests.unmet_errors import raises, unmet

TYPES = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, errors.EligibilityError)
]


@pytest.mark.parametrize("error_type", TYPES)
def test_message_holds_the_four_facts(error_type: type[errors.EligibilityError]) -> None:
    error = error_type("`action`", "7", "an index in [0, 5)", "pass the index of a category")
    assert str(error) == (
        "`action`: got 7, expected an index in [0, 5); pass the index of a category"
    )
    assert error.remedy == "pass the index of a category"


@pytest.mark.parametrize("error_type", TYPES)
def test_errors_can_be_pickled(error_type: type[errors.EligibilityError]) -> None:
    error = error_type("a", "b", "c", "d")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is error_type
    assert str(copy) == str(error)


@pytest.mark.parametrize(
    ("error_type", "builtin"),
    [
        (errors.InvalidValueError, ValueError),
        (errors.ShapeError, ValueError),
        (errors.InvalidTypeError, TypeError),
        (errors.UnsupportedDistributionError, NotImplementedError),
        (errors.MissingDependencyError, ImportError),
        (errors.OutputError, OSError),
    ],
)
def test_errors_are_also_the_builtin_that_one_would_catch(
    error_type: type[Exception], builtin: type[Exception]
) -> None:
    assert issubclass(error_type, builtin)


def test_every_type_is_raised_somewhere() -> None:
    sources = (Path(__file__).parents[1] / "src" / "eligibility").rglob("*.py")
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    assert not [error.__name__ for error in TYPES if f"{error.__name__}(" not in text]


def test_refusals_that_no_test_met_are_found(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text(
        "def f(x):\n    if x:\n        raise ShapeError(x)\n    try:\n        raise f(x)\n"
        "    except ShapeError:\n        raise\n    raise NotImplementedError\n"
    )
    assert sorted(raises((tmp_path / "code.py").read_text())) == [(3, "ShapeError"), (5, "f")]
    report = tmp_path / "coverage.json"
    report.write_text(json.dumps({"files": {"code.py": {"missing_lines": [3, 7, 8]}}}))
    assert unmet(report, tmp_path) == ["code.py:3 ShapeError"]
