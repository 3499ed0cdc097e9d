"""Every answer that the tiny model can give, and every group of them."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from functools import cache
from math import factorial, prod

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


@cache
def states(length: int = LENGTH) -> tuple[Tokens, ...]:
    """What can have been said when the next token is drawn, the shortest first."""
    words = [token for token in range(VOCABULARY) if token != END]
    return tuple(s for size in range(length) for s in itertools.product(words, repeat=size))


@cache
def answers(length: int = LENGTH) -> tuple[Tokens, ...]:
    """Every answer: those that end, and those that are cut at the length; the shortest first."""
    grown = [(*state, token) for state in states(length) for token in range(VOCABULARY)]
    complete = (a for a in grown if a[-1] == END or len(a) == length)
    return tuple(sorted(complete, key=lambda answer: (len(answer), answer)))


def outcomes(
    ordered: bool, prompts: int = len(PROMPTS), group: int = GROUP, length: int = LENGTH
) -> list[tuple[Tokens, int]]:
    """Every choice of answers for all rows, and how many orders within groups it stands for."""
    indices = range(len(answers(length)))
    if ordered:
        groups = [(chosen, 1) for chosen in itertools.product(indices, repeat=group)]
    else:
        unordered = itertools.combinations_with_replacement(indices, group)
        groups = [(chosen, _orders(chosen)) for chosen in unordered]
    joint = itertools.product(groups, repeat=prompts)
    return [
        (tuple(a for chosen, _ in choice for a in chosen), prod(n for _, n in choice))
        for choice in joint
    ]


def _orders(group: Tokens) -> int:
    return factorial(len(group)) // prod(factorial(n) for n in Counter(group).values())


def parsed(row: Sequence[int], length: int = LENGTH) -> tuple[Tokens, Tokens, int]:
    """The prompt and the answer in a padded row of tokens, and where the answer begins.

    A prompt's last token is one that no answer has; what follows the first end is padding.
    """
    start = len(row) - row[::-1].index(PROMPT_ONLY) if PROMPT_ONLY in row else 0
    first = next((i for i, token in enumerate(row) if token not in (END, PAD)), 0)
    answer = row[start : start + length]
    if END in answer:
        answer = answer[: answer.index(END) + 1]
    if PAD in answer:
        answer = answer[: answer.index(PAD)]
    return tuple(row[first:start]), tuple(answer), start
