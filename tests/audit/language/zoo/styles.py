"""The same loss as different people write it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from eligibility.audit.language.token_batch import TokenBatch
from tests.audit.language.zoo.parts import Recipe

Style = Callable[[Recipe], dict[str, Any]]  # the arguments of audit_token_loss


def _advantages(recipe: Recipe, batch: TokenBatch, log_probs: Tensor) -> Tensor:
    rewards = batch.rewards
    if recipe.shaped is not None:
        rewards = rewards - recipe.shaped(batch, log_probs)
    return recipe.credit(rewards, batch.group_size)


def _combined(recipe: Recipe, batch: TokenBatch, log_probs: Tensor) -> Tensor:
    terms = recipe.term(log_probs, _advantages(recipe, batch, log_probs))
    if recipe.extra is not None:
        terms = terms + recipe.extra(batch, log_probs)
    return recipe.reduce(terms * recipe.mask(batch), batch)


def flat(recipe: Recipe) -> dict[str, Any]:
    """A function of the batch."""
    return {"loss": lambda batch: _combined(recipe, batch, batch.log_probs)}


def from_logits(recipe: Recipe) -> dict[str, Any]:
    """Log-probabilities of its own, as trainers that hold the logits have them."""

    def loss(batch: TokenBatch) -> Tensor:
        rows = batch.logits - batch.logits.logsumexp(-1, keepdim=True)
        log_probs = rows.gather(-1, batch.tokens.unsqueeze(-1)).squeeze(-1)
        return _combined(recipe, batch, log_probs)

    return {"loss": loss}


def from_hidden(recipe: Recipe) -> dict[str, Any]:
    """Features times the unembedding, row by row, as fused losses do it."""

    def loss(batch: TokenBatch) -> tuple[Tensor, dict[str, float]]:
        chunks = [
            -nn.functional.cross_entropy(row @ batch.unembedding.T, tokens, reduction="none")
            for row, tokens in zip(batch.hidden, batch.tokens, strict=True)
        ]
        return _combined(recipe, batch, torch.stack(chunks)), {"seen": 1.0}

    return {"loss": loss}


def module(recipe: Recipe) -> dict[str, Any]:
    """A module with a ratio that is 1, and the advantages by another function."""

    class PolicyLoss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("clip", torch.tensor(0.2))

        def forward(
            self,
            log_probs: Tensor,
            old_log_probs: Tensor,
            advantages: Tensor,
            action_mask: Tensor,
            batch: TokenBatch,
        ) -> dict[str, Tensor]:
            ratio = (log_probs - old_log_probs).exp()
            scored = log_probs.detach() + ratio - ratio.detach()
            terms = recipe.term(scored, advantages)
            if recipe.extra is not None:
                terms = terms + recipe.extra(batch, log_probs)
            return {"loss": recipe.reduce(terms * recipe.mask(batch), batch)}

    def advantage(batch: TokenBatch) -> Tensor:
        return _advantages(recipe, batch, batch.log_probs)

    return {"loss": PolicyLoss(), "advantage": advantage}


def in_loops(recipe: Recipe) -> dict[str, Any]:
    """Answers and tokens one at a time."""

    def loss(batch: TokenBatch) -> Tensor:
        advantages = _advantages(recipe, batch, batch.log_probs)
        kept = recipe.mask(batch)
        extra = None if recipe.extra is None else recipe.extra(batch, batch.log_probs)
        rows = []
        for row in range(len(batch.tokens)):
            terms = recipe.term(batch.log_probs[row : row + 1], advantages[row : row + 1])[0]
            cells = []
            for place in range(batch.tokens.shape[1]):
                cell = terms[place]
                if extra is not None:
                    cell = cell + extra[row, place]
                cells.append(cell * kept[row, place])
            rows.append(torch.stack(cells))
        return recipe.reduce(torch.stack(rows), batch)

    return {"loss": loss}


STYLES: dict[str, Style] = {
    "flat": flat,
    "from logits": from_logits,
    "from hidden": from_hidden,
    "module": module,
    "in loops": in_loops,
}
