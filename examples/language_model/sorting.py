"""The task: put digits in order. A program can tell whether an answer is right.

A prompt is ``length`` digits and the separator; the answer is the same digits from the smallest to
the largest. Digits are the first tokens of the vocabulary, the separator the one after them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Sorting:
    """Prompts, and the reward of their answers."""

    symbols: int  # different digits
    length: int  # digits in a prompt, tokens in an answer

    @property
    def tokens(self) -> int:
        """The digits and the separator."""
        return self.symbols + 1

    def prompts(self, count: int, generator: torch.Generator) -> Tensor:
        """Random prompts, ``[count, length + 1]``."""
        digits = torch.randint(self.symbols, (count, self.length), generator=generator)
        return torch.cat([digits, torch.full((count, 1), self.symbols)], 1)

    def right(self, prompts: Tensor, answers: Tensor) -> Tensor:
        """Which tokens of the answers are the ones wanted, ``[count, length]``."""
        return answers == prompts[:, : self.length].sort(1).values

    def reward(self, prompts: Tensor, answers: Tensor) -> Tensor:
        """The share of right tokens, and one more for a whole answer: ``[count]`` in [0, 2]."""
        right = self.right(prompts, answers)
        return right.float().mean(1) + right.all(1).float()
