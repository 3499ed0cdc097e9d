"""What is known of a fault or a choice: one record, which reports are made of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """A way in which a program fails to compute the policy gradient.

    Attributes:
        id: Identifier, as in reports; the name of its page in ``docs/audit``, which has an example.
        title: A few words.
        means: One sentence without its full stop: what the program computes instead.
        fix: A line of code or an instruction.
        look: Calls or words by which its statement is found in the program's text.
        severity: "fault"; or "warning" for what is seen and not known to be wrong.
    """

    id: str
    title: str
    means: str
    fix: str
    look: tuple[str, ...] = ()
    severity: str = "fault"


@dataclass(frozen=True)
class Choice:
    """A convention: a choice that people make on purpose.

    Attributes:
        id: Identifier, as in reports.
        means: What it does, without a full stop.
    """

    id: str
    means: str
