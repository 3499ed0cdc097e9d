"""Errors say what, got, expected and remedy, and survive a trip between processes."""

from __future__ import annotations

import pickle

import pytest

from eligibility import errors

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
