"""The exception types: every user error raises one of these, with the same four parts.

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
        super().__init__(f"{what}: got {got}, expected {expected}; {remedy}")
        self.what, self.got, self.expected, self.remedy = what, got, expected, remedy

    def __reduce__(self) -> tuple[type[EligibilityError], tuple[str, str, str, str]]:
        """Rebuild from the four parts, because errors travel between processes."""
        return type(self), (self.what, self.got, self.expected, self.remedy)


class InvalidValueError(EligibilityError, ValueError):
    """An argument has the right shape and type, and a value outside its domain."""


class ShapeError(EligibilityError, ValueError):
    """Shapes do not match. Nothing is broadcast silently."""


class InvalidTypeError(EligibilityError, TypeError):
    """An argument has an unsupported type, or a tensor has an unsupported dtype."""


class UnsupportedDistributionError(EligibilityError, NotImplementedError):
    """No rule is registered for this distribution, or for this parameter."""


class InvalidReinforceError(EligibilityError, ValueError):
    """The eligibility exists, but REINFORCE with it is biased because E[e] is not 0."""


class MissingDependencyError(EligibilityError, ImportError):
    """A required optional package is not installed."""


class OutputError(EligibilityError, OSError):
    """A file or a folder cannot be written."""
