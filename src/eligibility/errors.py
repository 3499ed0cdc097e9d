"""The exception types: every mistake of a user raises one of these, with the same four facts.

A message says *what* is wrong, what was *got*, what was *expected*, and the *remedy*. The command
line prints it as one line and exits with status 2.
"""

from __future__ import annotations


class EligibilityError(Exception):
    """Base of everything this package raises on purpose.

    Args:
        what: The argument, file or quantity that is wrong, as the user wrote it.
        got: What it was, summarised; never a whole tensor.
        expected: What it must be.
        remedy: What to do about it.

    Example:
        >>> print(InvalidValueError("`action`", "a maximum of 7", "indices in [0, 5)",
        ...                         "pass the index of a category"))
        `action`: got a maximum of 7, expected indices in [0, 5); pass the index of a category
    """

    def __init__(self, what: str, got: str, expected: str, remedy: str) -> None:
        super().__init__(what, got, expected, remedy)
        self.what, self.got, self.expected, self.remedy = what, got, expected, remedy

    def __str__(self) -> str:
        return f"{self.what}: got {self.got}, expected {self.expected}; {self.remedy}"


class InvalidValueError(EligibilityError, ValueError):
    """An argument has the right shape and type, and a value outside its domain."""


class ShapeError(EligibilityError, ValueError):
    """Shapes do not fit together. Nothing is broadcast silently."""


class InvalidTypeError(EligibilityError, TypeError):
    """An argument is of a type, or a tensor of a dtype, that has no meaning here."""


class UnsupportedDistributionError(EligibilityError, NotImplementedError):
    """No rule is registered for this distribution or for this parameter of it."""


class InvalidReinforceError(EligibilityError, ValueError):
    """The eligibility exists as a number, and REINFORCE with it is biased: E[e] is not 0."""


class MissingDependencyError(EligibilityError, ImportError):
    """An optional package is needed and not installed."""


class OutputError(EligibilityError, OSError):
    """A file or a folder cannot be written."""

    # OSError's own __str__ would print the four arguments as errno and file names.
    __str__ = EligibilityError.__str__
