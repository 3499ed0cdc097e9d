"""Every answer that the tiny model can give, and every group of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

from eligibility.audit.language.languages import Language, every_batch
from eligibility.audit.trainers.tiny import (
    END,
    GROUP,
    LENGTH,
    PAD,
    PROMPT_ONLY,
    PROMPTS,
    VOCABULARY,
)

Tokens = tuple[int, ...]
MOST = 230  # outcomes of one policy


@cache
def _language(length: int, prompts: int = 1, group: int = 1) -> Language:
    return Language(prompts, group, length, VOCABULARY)


def states(length: int = LENGTH) -> tuple[Tokens, ...]:
    """Every beginning of an answer that a next token is drawn after."""
    return _language(length).states


def answers(length: int = LENGTH) -> tuple[Tokens, ...]:
    """Every answer: those that end, and those that are cut at the length; the shortest first."""
    return _language(length).answers


def outcomes(
    ordered: bool, prompts: int = len(PROMPTS), group: int = GROUP, length: int = LENGTH
) -> list[tuple[Tokens, int]]:
    """Every choice of answers for all rows, and how many orders within groups it stands for."""
    return every_batch(_language(length, prompts, group), ordered)


def longest(prompts: int, group: int) -> int:
    """The greatest length of answers at which there are at most `MOST` outcomes; 0: none."""
    for length in (LENGTH, LENGTH - 1):
        count = len(answers(length))
        if math.comb(count + group - 1, group) ** prompts <= MOST:
            return length
    return 0


def parsed(row: Sequence[int], length: int = LENGTH) -> tuple[Tokens, Tokens, int]:
    """The prompt and the answer in a padded row of tokens, and where the answer begins.

    A prompt's last token is one that no answer has; what follows the first end is padding. Prompts
    that are padded on the right have their padding before the answer.
    """
    stop = start = len(row) - row[::-1].index(PROMPT_ONLY) if PROMPT_ONLY in row else 0
    first = next((i for i, token in enumerate(row) if token not in (END, PAD)), 0)
    start += next((i for i, token in enumerate(row[start:]) if token != PAD), 0)
    answer = row[start : start + length]
    if END in answer:
        answer = answer[: answer.index(END) + 1]
    if PAD in answer:
        answer = answer[: answer.index(PAD)]
    return tuple(row[first:stop]), tuple(answer), start
