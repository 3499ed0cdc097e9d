"""What one run of a program draws: the answers of a plan, by `generate` or token by token."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from eligibility.audit.trainers.answers import Tokens, answers, parsed
from eligibility.audit.trainers.next_token import setting
from eligibility.audit.trainers.refused import Refused
from eligibility.audit.trainers.scored import Scored
from eligibility.audit.trainers.tiny import END, PAD, PROMPT_ONLY, VOCABULARY, WORD
from eligibility.audit.user_code import user_stack

_NEVER = -1000.0  # a logit


@dataclass
class _Episode:
    """Rows that are drawn together, token by token; ``first`` is the number of the first row."""

    first: int
    size: int
    drawn: int = 0


@dataclass
class Draws:
    """The rows of a run so far.

    Attributes:
        plan: Index of the answer of each row, in the program's order; what is beyond it repeats.
        length: Tokens of the longest answer.
        bounded: Whether no row may be drawn beyond the plan.
        prompts: Prompts of the rows.
        given: Their answers.
        called: How many of them the last call gave.
        probabilities: With which the program drew tokens itself, by prompt and tokens before.
        count: Calls that drew tokens.
        calls: First row of each call, and the lines of the program that led to it.
        goes_on: Whether tokens were drawn when every row had ended, as for answers of one length.
    """

    plan: tuple[int, ...]
    length: int
    bounded: bool = False
    prompts: list[Tokens] = field(default_factory=list)
    given: list[Tokens] = field(default_factory=list)
    called: int = 0
    probabilities: dict[tuple[Tokens, Tokens], list[float]] = field(default_factory=dict)
    count: int = 0
    calls: list[tuple[int, list[tuple[str, int]]]] = field(default_factory=list)
    goes_on: bool = False
    _episode: _Episode | None = None

    @property
    def complete(self) -> bool:
        """Whether every row of the plan has been drawn."""
        return self.bounded and len(self.given) >= len(self.plan)

    @property
    def between_calls(self) -> bool:
        """Whether no answer is being drawn token by token."""
        episode = self._episode
        if episode is None:
            return True
        drawn = self.given[episode.first : episode.first + episode.size]
        return all(episode.drawn >= len(answer) for answer in drawn)

    def next_rows(self, prompts: list[Tokens]) -> list[Tokens]:
        """The answers to these prompts."""
        every = answers(self.length)
        start = len(self.given)
        chosen = [every[self.plan[(start + i) % len(self.plan)]] for i in range(len(prompts))]
        self.prompts += prompts
        self.given += chosen
        self.called = len(chosen)
        self.calls.append((start, user_stack()))
        return chosen

    def tokens(self, last: Scored, probs: Tensor) -> Tensor:
        """[N] the next token of each row of the last forward pass."""
        table = probs.detach().reshape(-1, probs.shape[-1])
        drawn = drawn_before(last)
        if drawn == 0:
            first = len(self.given)
            self.next_rows([parsed(row, self.length)[0] for row in last.rows])
            self._episode = _Episode(first, len(last.rows))
        episode = self._episode
        if episode is None or episode.drawn != drawn or episode.size != len(last.rows):
            raise Refused(
                "the audit cannot follow how the program draws tokens; audit its loss "
                "with audit_token_loss"
            )
        places = range(episode.first, episode.first + episode.size)
        last.places = list(places)
        if drawn >= self.length:
            raise Refused(
                f"the program continues an answer after {self.length} tokens; audit its loss "
                "with audit_token_loss"
            )
        self.goes_on |= all(drawn >= len(self.given[place]) for place in places)
        episode.drawn += 1
        self.count += 1
        for place, row in zip(places, table, strict=True):
            answer = self.given[place]
            if drawn < len(answer):
                kept = row[:VOCABULARY].double()
                share = (kept / row.sum()).tolist()
                self.probabilities[self.prompts[place], answer[:drawn]] = share
        said = [self.given[place] for place in places]
        return torch.tensor([a[drawn] if drawn < len(a) else END for a in said])

    def over(self, before: int | None) -> tuple[bool, int]:
        """Whether a loop that drew one token each time has drawn all that an answer can have."""
        episode = self._episode
        whole = episode is not None and episode.drawn == self.length
        return before is not None and self.count - before == 1 and whole, self.count


def calls_without_a_part(found: dict[str, Any]) -> int:
    """How many first calls are made where no answer is ever trained on, as an evaluation's are.

    Of the same answers to the same prompt the last ones count as those that are trained on.
    """
    starts = [first for first, _ in found["calls"]]
    ends = [*starts[1:], len(found["prompts"])]
    rows = [str(row) for row in zip(found["prompts"], found["given"], strict=True)]
    left, scored = Counter(rows[row] for row in found["scored"]), set()
    for number in reversed(range(len(rows))):
        if left[rows[number]]:
            left[rows[number]] -= 1
            scored.add(number)
    parts = [any(row in scored for row in range(a, b)) for a, b in zip(starts, ends, strict=True)]
    ways = [tuple(map(tuple, way)) for _, way in found["calls"]]
    used = {way for way, has in zip(ways, parts, strict=True) if has}
    return next((i for i, way in enumerate(ways) if way in used), 0)


def with_a_certain_end(logits: Tensor, scored: Scored) -> Tensor:
    """[N, T, V] the logits of a policy that says nothing but the end once it has said it.

    A token of probability 1 has no gradient, so what is drawn there takes no part in anything.
    """
    barred = torch.zeros_like(logits, dtype=torch.bool)
    first = len(scored.rows[0]) - logits.shape[1]
    for number, row in enumerate(scored.rows):
        start = parsed(row, len(row))[2]
        if END in row[start:]:
            barred[number, max(row.index(END, start) - first, 0) :, WORD] = True
    return logits.masked_fill(barred, _NEVER)


# What keeps `generate` from drawing each token from the model's own probabilities, in a way that
# one token alone does not show; and up to where it does not.
_BESIDE_ONE_TOKEN = {"min_new_tokens": 0, "num_beams": 1}


def unseen_in(options: dict[str, Any]) -> list[str]:
    """What a call of `generate` asks for of these, and what to write instead; empty: nothing."""
    for name, least in _BESIDE_ONE_TOKEN.items():
        value = setting(options, name) or 0
        if value > least:
            return [
                f"with `{name}={value}`, `generate` does not draw every token from the model's own "
                "probabilities, by which the loss scores it; one token alone does not show it, so "
                "no figure here does",
                f"model.generate(...)  # without {name}={value}",
            ]
    return []


def has_one_length(options: dict[str, Any]) -> bool:
    """Whether `generate` is asked for answers that cannot end early."""
    least, most = (setting(options, f"{end}_new_tokens") for end in ("min", "max"))
    return bool(least and most and least >= most)


def draws_tokens(last: Scored, probs: Tensor, width: int) -> bool:
    """Whether a draw is that of one of ``width`` tokens for each row of the last forward pass."""
    return probs.shape[-1:] == (width,) and probs.numel() == width * len(last.rows)


def drawn_before(last: Scored) -> int:
    """How many tokens of its answer each row of a forward pass has."""
    row = last.rows[0]
    return len(row) - parsed(row, len(row))[2]


def without_padding(row: list[int]) -> Tokens:
    """The prompt in a row of tokens."""
    if PROMPT_ONLY not in row:
        raise Refused(
            "the program writes its prompts as numbers of tokens, and the probe's tokens are "
            "others; get token ids from the tokenizer, or audit its loss with audit_token_loss"
        )
    prompt = parsed(row)[0]
    if PAD in prompt:
        raise Refused(
            "the program pads prompts on the right before it samples, so answers begin after "
            "padding; pass padding_side='left' to its tokenizer"
        )
    return prompt
