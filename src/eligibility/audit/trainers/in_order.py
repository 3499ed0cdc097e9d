"""Tokens that a program draws from a list in the order of their probabilities."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from eligibility.audit.trainers.doubles import HIGHEST
from eligibility.audit.trainers.many_tokens import MANY
from eligibility.audit.trainers.tiny import SYMBOLS
from eligibility.audit.user_code import user_place

_SORTS = {torch.sort, torch.Tensor.sort, torch.argsort, torch.Tensor.argsort}


class Order:
    """The last order in which the program has put the tokens."""

    def __init__(self) -> None:
        self._tokens: Tensor | None = None  # [..., k]
        self._descending = False
        self.place: tuple[str, int] = ("", 0)  # where it has

    def met(self, func: Any, args: Any, options: dict[str, Any], result: Any) -> None:
        """A call of torch's that was made."""
        orders = func in HIGHEST or func in _SORTS
        if orders and _is_of_tokens(args[0] if args else options["input"]):
            tokens = result if isinstance(result, Tensor) else result[1]
            self._tokens, self.place = tokens.detach(), user_place()
            asked = options.get("descending", args[2] if len(args) > 2 else False)
            self._descending = func in HIGHEST or bool(asked)

    def of(self, probs: Tensor) -> Tensor | None:
        """[..., k] the tokens that these are the probabilities of; None: they are in no order."""
        tokens = self._tokens
        if tokens is None or tokens.shape != probs.shape or probs.shape[-1] < 2:
            return None
        steps = probs.detach().diff(dim=-1)
        sorted_so = (steps <= 0) if self._descending else (steps >= 0)
        return tokens if bool(sorted_so.all()) else None


def _is_of_tokens(numbers: Tensor) -> bool:
    """Whether there is one for each token."""
    return numbers.shape[-1:] in ((len(SYMBOLS),), (MANY,))


def by_token(probs: Tensor, order: Tensor, tokens: int) -> Tensor:
    """[..., V] probabilities that are in an order; 0 for what is not in it."""
    whole = torch.zeros(*probs.shape[:-1], tokens, dtype=probs.dtype)
    return whole.scatter(-1, order, probs.detach())


def places_in(order: Tensor, tokens: Tensor) -> Tensor:
    """[..., 1] the place of each token [..., 1] in the order."""
    return (order == tokens).long().argmax(-1, keepdim=True)
