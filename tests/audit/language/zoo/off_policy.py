"""Losses for answers of another policy: what trainers do with the ratio, term by term."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from eligibility.audit.language.token_batch import TokenBatch

Term = Callable[[TokenBatch, Tensor], Tensor]  # [B, T] of a batch and advantages [B, 1]


@dataclass(frozen=True)
class Correction:
    """A term of a loss, and what it should be called.

    Attributes:
        term: [B, T], to be minimised.
        ratio: The convention of its ratio; "" if there is none.
        gate: The convention of what becomes of far ratios; "" if there is none.
    """

    term: Term
    ratio: str
    gate: str = ""


def log_ratio(batch: TokenBatch) -> Tensor:
    """[B, T] 0 on the padding."""
    return (batch.log_probs - batch.rollout_log_probs) * batch.mask


def of_tokens(batch: TokenBatch) -> Tensor:
    return log_ratio(batch).exp()


def of_answers(batch: TokenBatch) -> Tensor:
    return log_ratio(batch).sum(1, keepdim=True).exp()


def of_means(batch: TokenBatch) -> Tensor:
    """The geometric mean of an answer's ratios, with the gradient of each token's own (GSPO)."""
    mean = log_ratio(batch).sum(1, keepdim=True) / batch.lengths[:, None]
    return (batch.log_probs - batch.log_probs.detach() + mean.detach()).exp()


def clipped(ratio: Tensor, advantages: Tensor, low: float = 0.8, high: float = 1.2) -> Tensor:
    return -torch.minimum(ratio * advantages, ratio.clamp(low, high) * advantages)


def dual_clipped(ratio: Tensor, advantages: Tensor) -> Tensor:
    inner = -clipped(ratio, advantages)
    return -torch.where(advantages < 0, torch.maximum(inner, 2.0 * advantages), inner)


def weighted(batch: TokenBatch, weights: Tensor, advantages: Tensor) -> Tensor:
    return -weights.detach() * advantages * batch.log_probs


def within(values: Tensor, low: float, high: float) -> Tensor:
    return ((values >= low) & (values <= high)).double()


def least(batch: TokenBatch) -> Tensor:
    """[B, 1] the smallest ratio of each answer."""
    return of_tokens(batch).masked_fill(batch.mask == 0, torch.inf).amin(1, keepdim=True)


def soft(ratio: Tensor, advantages: Tensor) -> Tensor:
    steepness = torch.where(advantages > 0, 1.0, 1.5)
    return -torch.sigmoid(steepness * (ratio - 1)) * 4 / steepness * advantages


CORRECTIONS: dict[str, Correction] = {
    "token ratio": Correction(lambda b, a: -of_tokens(b) * a, "token-ratio"),
    "PPO": Correction(lambda b, a: clipped(of_tokens(b), a), "token-ratio", "clipped"),
    "clip-higher": Correction(
        lambda b, a: clipped(of_tokens(b), a, 0.8, 1.5), "token-ratio", "clipped"
    ),
    "dual clip": Correction(lambda b, a: dual_clipped(of_tokens(b), a), "token-ratio", "clipped"),
    "GSPO": Correction(lambda b, a: clipped(of_means(b), a), "geometric-mean-ratio", "clipped"),
    "GSPO, narrow": Correction(
        lambda b, a: clipped(of_means(b), a, 1 - 3e-4, 1 + 4e-4), "geometric-mean-ratio", "clipped"
    ),
    "truncated tokens": Correction(
        lambda b, a: weighted(b, of_tokens(b).clamp(max=1.5), a),
        "token-ratio",
        "truncated-importance",
    ),
    "truncated answers": Correction(
        lambda b, a: weighted(b, of_answers(b).clamp(max=1.5), a),
        "sequence-ratio",
        "truncated-importance",
    ),
    "CISPO": Correction(
        lambda b, a: weighted(b, of_tokens(b).clamp(0.75, 1.3), a),
        "token-ratio",
        "truncated-importance",
    ),
    "IcePop": Correction(
        lambda b, a: weighted(b, of_tokens(b) * within(of_tokens(b), 0.75, 1.5), a),
        "token-ratio",
        "masked-importance",
    ),
    "truncated, and the gradient lost": Correction(
        lambda b, a: -of_tokens(b).clamp(max=1.5) * a, "token-ratio", "masked-importance"
    ),
    "masked by answers": Correction(
        lambda b, a: weighted(b, of_tokens(b) * within(of_answers(b), 0.75, 1.5), a),
        "token-ratio",
        "masked-importance",
    ),
    "vetoed by a token": Correction(
        lambda b, a: weighted(b, of_answers(b) * (least(b) > 0.75), a),
        "sequence-ratio",
        "masked-importance",
    ),
    "masked, without a ratio": Correction(
        lambda b, a: weighted(b, within(of_tokens(b), 0.75, 1.5), a), "", "masked-importance"
    ),
    "SAPO": Correction(lambda b, a: soft(of_tokens(b), a), "token-ratio", "soft-clipped"),
}
