"""How a run ends that is not the program's own end."""

from __future__ import annotations


class Finished(BaseException):
    """Every group of answers has been trained on."""


class Refused(BaseException):
    """The program needs what the probe cannot stand in for; the message is one sentence."""
