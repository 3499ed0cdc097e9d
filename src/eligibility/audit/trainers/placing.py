"""Which answer of the outcome a row of tokens that the program scores belongs to."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from eligibility.audit.trainers.answers import Tokens, parsed
from eligibility.audit.trainers.draws import Draws
from eligibility.audit.trainers.refused import Refused
from eligibility.audit.trainers.spelling import other_text
from eligibility.audit.trainers.tiny import END

_Row = tuple[Tokens, Tokens]


class Placing:
    """The rows of an outcome, each of which is scored once in a step.

    Attributes:
        rows: Prompt and answer of each.
        overwrites: Whether the program puts the end in place of a drawn answer's last token.
        overwritten: Whether the last step has scored that end.
    """

    def __init__(self, rows: list[_Row]) -> None:
        self.rows = rows
        self._free = list(range(len(rows)))  # that no step has scored yet
        self._met: set[int] = set()  # rows that this step has scored
        self._open: set[tuple[int, int]] = set()  # row and position, of those scored token by token
        self._latest: dict[int, int] = {}  # the row that stood at this place of the last pass
        self.overwrites = self.overwritten = False

    def begin_step(self) -> None:
        """Rows that are scored token by token begin with their first token again."""
        self._met.clear()
        self._open = {(i, t) for i, (_, answer) in enumerate(self.rows) for t in range(len(answer))}
        self.overwritten = False

    def end_pass(self) -> None:
        """Once every row has been scored, each may be scored again."""
        if not self._free:
            self._free = list(range(len(self.rows)))
            self._met.clear()

    def of_next_token(self, number: int, prompt: Tokens, said: Tokens) -> int | None:
        """The row of which a pass scores the token after those said; None: there is none.

        Args:
            number: Where it stands in its pass: what stood there before goes on.
            prompt: Its prompt.
            said: What it has said of its answer.
        """
        t = len(said)
        begun = [i for i, s in sorted(self._open) if s == t and self._begins(i, prompt, said)]
        if not begun:
            return None
        latest = self._latest.get(number, -1)
        place = self._latest[number] = latest if latest in begun else begun[0]
        self._open.discard((place, t))
        return place

    def _begins(self, place: int, prompt: Tokens, said: Tokens) -> bool:
        known, answer = self.rows[place]
        return known == prompt and answer[: len(said)] == said

    def of_answer(
        self, prompt: Tokens, answer: Tokens, last: Tensor, where: tuple[str, int]
    ) -> int:
        """The row of an answer; the same one twice only when all have been met.

        Args:
            prompt: Its prompt.
            answer: What is scored.
            last: [V] the gradient at the logits of its last token.
            where: The program's call.
        """
        row, ended = (prompt, answer), (prompt, (*answer, END))  # the end may be lost in the text
        same = [i for i, known in enumerate(self.rows) if known == row]
        same = same or [
            i for i, known in enumerate(self.rows) if known == ended and i not in self._met
        ]
        if self.overwrites:
            same += [i for i in self._free if _is_overwritten(row, self.rows[i])]
            same.sort()
        if not same:
            raise Refused(
                "the program scores tokens other than those it sampled; audit its loss with "
                "audit_token_loss",
                other_text(len(prompt), [len(known) for known, _ in self.rows]),
                where,
            )
        place = next((i for i in same if i in self._free), same[0])
        self._met.add(place)
        if place in self._free:
            self._free.remove(place)
        self.overwritten |= _is_overwritten(row, self.rows[place]) and bool(last.any())
        return place


def _is_overwritten(row: _Row, drawn: _Row) -> bool:
    """Whether a row is that of a drawn answer with the end in place of its last token."""
    (prompt, answer), (known, said) = row, drawn
    return prompt == known and answer == (*said[:-1], END) != said


_WRITES = {
    "scatter_", "scatter", "masked_fill_", "masked_fill", "index_fill_", "where", "__setitem__",
    "index_put_", "copy_", "fill_",
}  # fmt: skip


def writes_an_end(func: Any, args: Any, result: Any, draws: Draws) -> bool:
    """Whether a call of torch's has put the end in place of a drawn answer's last token."""
    written = args[0] if result is None else result
    if getattr(func, "__name__", "") not in _WRITES or not isinstance(written, Tensor):
        return False
    if written.dtype != torch.long or written.ndim not in (1, 2):
        return False
    drawn = list(zip(draws.prompts, draws.given, strict=True))
    rows = written.reshape(-1, written.shape[-1]).tolist()
    read = (parsed(row, draws.length)[:2] for row in rows)
    return any(_is_overwritten(row, each) for row in read for each in drawn)
