"""How a run ends that is not the program's own end."""

from __future__ import annotations


class Finished(BaseException):
    """Every group of answers has been trained on."""


class Refused(BaseException):
    """The program needs what the probe cannot stand in for; the message is one sentence.

    Args:
        message: The sentence.
        fault: What is known to be wrong nevertheless: how its answers are scored after another
            text than the one that they are drawn after; empty: nothing.
        where: File and line that score them.
    """

    def __init__(self, message: str, fault: str = "", where: tuple[str, int] = ("", 0)) -> None:
        super().__init__(message)
        self.fault, self.where = fault, where
