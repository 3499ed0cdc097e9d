"""A vocabulary of many tokens: those that a program never draws, and scores all the same.

The probe's answers are of two tokens, on which `top_k`, `top_p` or `min_p` have no effect.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from eligibility.audit.trainers.answers import Tokens
from eligibility.audit.trainers.next_token import next_token, setting
from eligibility.audit.trainers.tiny import SYMBOLS, VOCABULARY
from eligibility.audit.user_code import asking_place

_MORE = 4096
_SAME = 1e-9  # of logits
_STEP = 0.003  # of their logits, which go down from just below those of the probe's own tokens
MANY = len(SYMBOLS) + _MORE


class ManyTokens:
    """More tokens behind the probe's own, with a probability each, of which none is ever drawn."""

    def __init__(self) -> None:
        self._kept = 0  # how many tokens can be drawn, of all that an answer may have; 0: all
        self._by_top_k = ""  # how the program asks for `top_k`, if that alone keeps it from others
        self._scored = False  # whether the loss has a gradient at the logit of one of the others
        self._drawn: list[tuple[Tensor, Tensor]] = []  # logits of the probe's tokens, and which can
        self._place: tuple[str, int] = ("", 0)
        self._hooks: dict[int, Any] = {}
        self._latest = torch.zeros(1, VOCABULARY)  # the last logits of each row of a pass

    def add_to(self, model: Any) -> None:
        """Give a model logits for them as well."""
        if id(model) not in self._hooks:
            hook = model.get_output_embeddings().register_forward_hook(self._with_more)
            self._hooks[id(model)] = hook
            model.config.vocab_size += _MORE

    def remove_from(self, model: Any) -> None:
        """Take them from a model again."""
        self._hooks.pop(id(model)).remove()
        model.config.vocab_size -= _MORE

    def drawn_from(self, probabilities: Tensor, cut_at: tuple[str, int] = ("", 0)) -> None:
        """[N, V] those of a token that is about to be drawn for each row of the last pass.

        Args:
            probabilities: Those.
            cut_at: Where the program looks for the likeliest; else it is the draw that is shown.
        """
        rows = probabilities.detach().reshape(-1, probabilities.shape[-1])[:, -_MORE:] > 0
        self._drawn += zip(self._latest, rows, strict=True)
        self._place = cut_at if cut_at[0] else asking_place()
        if not bool(rows.all()):
            self._kept = VOCABULARY + int(rows.sum(-1).max())

    def drawn_by(
        self, generate: Callable[..., Any], model: Any, prompt: Tokens, options: dict[str, Any]
    ) -> None:
        """The first token of an answer, by transformers' own ``generate``."""
        self.drawn_from(next_token(generate, model, prompt, options))
        if self._kept:
            freely = next_token(generate, model, prompt, options, top_k=0)
            if bool((freely[-_MORE:] > 0).all()):
                given = setting(options, "top_k") is not None
                self._by_top_k = "`top_k`" if given else "`top_k` is 50 where it is not given"

    def found(self) -> dict[str, Any]:
        """What a run has shown; nothing, if the loss does not score what is never drawn."""
        if not self._scored:
            return {}
        return {"unseen": self.unseen(), "drawn_at": self._place}

    def unseen(self) -> list[str]:
        """What the probe's own tokens do not show, and what to write instead; empty: nothing."""
        kept, end = self._kept, "; the probe has two tokens, so no figure here shows it"
        if self._by_top_k:
            return [
                f"tokens are drawn from the {kept} likeliest ({self._by_top_k}), and the loss "
                f"scores them among all{end}",
                f"top_k=0  # where tokens are drawn, instead of {kept}",
            ]
        if not kept:
            return []
        return [
            f"of a vocabulary of {MANY:,} tokens the program draws from {kept}, and the loss "
            f"scores them among all{end}",
            "draw from all tokens, or score the token among those that could be drawn",
        ]

    def _with_more(self, head: Any, args: Any, logits: Tensor) -> Tensor:
        own = logits[..., :VOCABULARY].detach()
        lowest = own.amin(-1, keepdim=True)
        wide = torch.cat([logits, lowest - _STEP * torch.arange(1, _MORE + 1)], -1)
        if wide.requires_grad:
            wide.register_hook(partial(self._reach, own))  # type: ignore[no-untyped-call]
        self._latest = own[:, -1]
        return wide

    def _reach(self, own: Tensor, gradient: Tensor) -> None:
        """The gradient [N, T, V] of the loss at logits, the probe's own of which are ``own``."""
        if not bool(gradient.isfinite().all()):  # the loss uses what `generate` gives as scores
            return
        for logits, can in self._drawn:
            here = ((own - logits).abs() < _SAME).all(-1)  # the state in which the token was drawn
            self._scored |= bool((gradient[here][:, -_MORE:][:, ~can] != 0).any())
            if not bool(can.all()):  # a nucleus is of about the same size in other states
                anywhere = gradient[..., -_MORE:][..., 2 * int(can.sum()) :]
                self._scored |= bool((anywhere != 0).any())
