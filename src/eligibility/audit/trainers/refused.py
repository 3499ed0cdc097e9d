"""How the audit ends a run before the program does."""

from __future__ import annotations


class Finished(BaseException):
    """Every group of answers has been trained on."""


class Refused(BaseException):
    """The program needs what the probe cannot stand in for; the message is one sentence.

    Args:
        message: The sentence.
        other_text: How its answers are scored after another text than they are drawn after, which
            is wrong whatever the rest is; empty: it is not known that they are.
        where: File and line that score them.
    """

    def __init__(
        self, message: str, other_text: str = "", where: tuple[str, int] = ("", 0)
    ) -> None:
        super().__init__(message)
        self.other_text, self.where = other_text, where
