"""What is known of a fault: one record, from which reports and pages are made."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """A way in which a program fails to compute the policy gradient.

    Attributes:
        id: Identifier, as in reports; the name of its page in ``docs/audit``.
        title: A few words.
        means: One sentence without its full stop: what the program computes instead.
        fix: A line of code or an instruction.
        example: The smallest code that has the fault.
        note: How it is found, and what it must not be confused with; Markdown.
        seen_in: Where it was met; Markdown.
        look: Calls or words by which its statement is found in the program's text.
        severity: "fault"; or "warning" for what is seen and not known to be wrong.
    """

    id: str
    title: str
    means: str
    fix: str
    example: str = ""
    note: str = ""
    seen_in: str = ""
    look: tuple[str, ...] = ()
    severity: str = "fault"

    def page(self) -> str:
        """Its page, in Markdown."""
        parts = [f"# {_capital(self.title)}", f"Rule id: `{self.id}`"]
        parts += ["## What it means", f"{_capital(self.means)}."]
        if self.example:
            parts += ["## Minimal example", _fenced(self.example)]
        parts += ["## The fix", _fenced(self.fix)]
        if self.note:
            parts += ["## How it is found", self.note]
        if self.seen_in:
            parts += ["## Seen in", self.seen_in]
        return "\n\n".join(parts) + "\n"


def _capital(words: str) -> str:
    """The words with a capital letter first, unless the first one is code."""
    plain = words.split()[0].replace("'", "").isalpha()
    return f"{words[0].upper()}{words[1:]}" if plain else words


def _fenced(code: str) -> str:
    return f"```\n{code}\n```"
