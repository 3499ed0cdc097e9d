"""What a loss is put together from: credits, divisors, regularisers; clean ones and faulty ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from eligibility.audit.language.token_batch import TokenBatch

BETA = 0.3


@dataclass(frozen=True)
class Recipe:
    """What a style builds its loss from.

    Attributes:
        name: For the test's name.
        credit: Advantages [B] of a batch, from rewards [B].
        reduce: The loss of per-token terms [B, T], already masked.
        term: Per-token term [B, T] from log-probabilities and advantages.
        extra: A regulariser per token [B, T], added to the loss's terms; and its weight.
        shaped: What is subtracted from the rewards [B].
        mask: The mask that is applied.
        rule: The fault that is expected; "" for a clean recipe.
    """

    name: str
    credit: Callable[[Tensor, int], Tensor]
    reduce: Callable[[Tensor, TokenBatch], Tensor]
    term: Callable[[Tensor, Tensor], Tensor] = lambda log_probs, advantages: (
        -log_probs * advantages[:, None]
    )
    extra: Callable[[TokenBatch, Tensor], Tensor] | None = None
    shaped: Callable[[TokenBatch, Tensor], Tensor] | None = None
    mask: Callable[[TokenBatch], Tensor] = lambda batch: batch.mask
    rule: str = ""


def raw(rewards: Tensor, size: int) -> Tensor:
    return rewards


def centred(rewards: Tensor, size: int) -> Tensor:
    return rewards - rewards.view(-1, size).mean(1).repeat_interleave(size)


def leave_one_out(rewards: Tensor, size: int) -> Tensor:
    others = rewards.view(-1, size).sum(1).repeat_interleave(size) - rewards
    return rewards - others / (size - 1)


def whitened(rewards: Tensor, size: int) -> Tensor:
    deviation = rewards.view(-1, size).std(1).repeat_interleave(size)
    return centred(rewards, size) / (deviation + 1e-4)


def batch_scaled(rewards: Tensor, size: int) -> Tensor:
    return centred(rewards, size) / (rewards.std() + 1e-6)


def batch_whitened(rewards: Tensor, size: int) -> Tensor:
    return (rewards - rewards.mean()) / (rewards.std() + 1e-8)


def batch_leave_one_out(rewards: Tensor, size: int) -> Tensor:
    return rewards - (rewards.sum() - rewards) / (len(rewards) - 1)


def of_answers(terms: Tensor, batch: TokenBatch) -> Tensor:
    return terms.sum(1).mean()


def of_all(terms: Tensor, batch: TokenBatch) -> Tensor:
    return terms.sum()


def fixed_divisor(terms: Tensor, batch: TokenBatch) -> Tensor:
    return terms.sum() / (len(terms) * batch.max_length)


def of_each_answer(terms: Tensor, batch: TokenBatch) -> Tensor:
    return (terms.sum(1) / batch.lengths).mean()


def of_tokens(terms: Tensor, batch: TokenBatch) -> Tensor:
    return terms.sum() / batch.lengths.sum()


def of_the_width(terms: Tensor, batch: TokenBatch) -> Tensor:
    return terms.mean()


CREDITS = (raw, centred, leave_one_out, whitened, batch_scaled, batch_whitened, batch_leave_one_out)
REDUCTIONS = (of_answers, of_all, fixed_divisor, of_each_answer, of_tokens, of_the_width)


# Divergences, per token; ``log_probs`` are what the style scores.
def k1(batch: TokenBatch, log_probs: Tensor) -> Tensor:
    return BETA * (log_probs - batch.ref_log_probs)


def k1_without_gradient(batch: TokenBatch, log_probs: Tensor) -> Tensor:
    with torch.no_grad():
        return BETA * (log_probs - batch.ref_log_probs)


def k2(batch: TokenBatch, log_probs: Tensor) -> Tensor:
    return BETA * (log_probs - batch.ref_log_probs) ** 2 / 2


def k3(batch: TokenBatch, log_probs: Tensor) -> Tensor:
    delta = batch.ref_log_probs - log_probs
    return BETA * (delta.exp() - delta - 1)


def k3_with_ratio(batch: TokenBatch, log_probs: Tensor) -> Tensor:
    return (log_probs - log_probs.detach()).exp() * k3(batch, log_probs)


def k2_with_the_wrong_sign(batch: TokenBatch, log_probs: Tensor) -> Tensor:
    return -k2(batch, log_probs)


def entropy(batch: TokenBatch, log_probs: Tensor) -> Tensor:
    rows = batch.logits.log_softmax(-1)
    return 0.1 * (rows.exp() * rows).sum(-1)


def entropy_with_the_wrong_sign(batch: TokenBatch, log_probs: Tensor) -> Tensor:
    return -entropy(batch, log_probs)


def in_reward(batch: TokenBatch, log_probs: Tensor) -> Tensor:
    return (k1(batch, log_probs).detach() * batch.mask).sum(1)


def in_reward_with_gradient(batch: TokenBatch, log_probs: Tensor) -> Tensor:
    return (k1(batch, log_probs) * batch.mask).sum(1)


def in_reward_with_the_wrong_sign(batch: TokenBatch, log_probs: Tensor) -> Tensor:
    return -in_reward(batch, log_probs)


def clean_recipes() -> list[Recipe]:
    made = [
        Recipe(f"{credit.__name__}, {reduce.__name__}", credit, reduce)
        for credit in CREDITS
        for reduce in REDUCTIONS
        # one of each pair of credits and divisors that are less usual together
        if credit in (raw, centred, whitened) or reduce in (of_answers, of_tokens)
    ]
    for credit, extra in ((centred, k2), (raw, k3_with_ratio), (leave_one_out, entropy)):
        for reduce in (of_answers, of_tokens):
            name = f"{credit.__name__}, {extra.__name__}, {reduce.__name__}"
            made.append(Recipe(name, credit, reduce, extra=extra))
    made.append(Recipe("k1 in the reward", raw, of_answers, shaped=in_reward))
    made.append(Recipe("k1 in the reward, centred", centred, fixed_divisor, shaped=in_reward))
    return made


def faulty_recipes() -> list[Recipe]:
    def ones(batch: TokenBatch) -> Tensor:
        return torch.ones_like(batch.mask)

    def without_last(batch: TokenBatch) -> Tensor:
        last = torch.arange(batch.mask.shape[1]) == batch.lengths[:, None] - 1
        return batch.mask * ~last

    def probability(log_probs: Tensor, advantages: Tensor) -> Tensor:
        return -log_probs.exp() * advantages[:, None]

    def climbing(log_probs: Tensor, advantages: Tensor) -> Tensor:
        return log_probs * advantages[:, None]

    def unused(log_probs: Tensor, advantages: Tensor) -> Tensor:
        return -log_probs

    def detached(log_probs: Tensor, advantages: Tensor) -> Tensor:
        return -log_probs.detach() * advantages[:, None]

    def everyone(rewards: Tensor, size: int) -> Tensor:
        return rewards.sum().expand(len(rewards))

    pairs = ((centred, of_answers), (whitened, of_each_answer), (leave_one_out, of_tokens))
    made = []
    for credit, reduce in pairs:
        where = f"{credit.__name__}, {reduce.__name__}"
        made += [
            Recipe(f"k3, {where}", credit, reduce, extra=k3, rule="kl-forward"),
            Recipe(f"k1, {where}", credit, reduce, extra=k1, rule="kl-without-gradient"),
            Recipe(f"k2 the wrong way, {where}", credit, reduce, extra=k2_with_the_wrong_sign,
                   rule="kl-sign"),
            Recipe(f"no mask, {where}", credit, reduce, mask=ones, rule="padding-counted"),
            Recipe(f"no last token, {where}", credit, reduce, mask=without_last,
                   rule="last-step-dropped"),
            Recipe(f"climbing, {where}", credit, reduce, climbing, rule="wrong-sign"),
            Recipe(f"probability, {where}", credit, reduce, probability,
                   rule="probability-not-log-probability"),
        ]  # fmt: skip
    made += [
        Recipe("k1 under no_grad", raw, of_answers, extra=k1_without_gradient,
               rule="kl-without-gradient"),
        Recipe("entropy", raw, of_answers, extra=entropy_with_the_wrong_sign, rule="entropy-sign"),
        Recipe("entropy, of_tokens", centred, of_tokens, extra=entropy_with_the_wrong_sign,
               rule="entropy-sign"),
        Recipe("unused", raw, of_answers, unused, rule="returns-unused"),
        Recipe("detached", raw, of_answers, detached, rule="no-gradient"),
        Recipe("everyone", everyone, of_tokens, rule="broadcast"),
        Recipe("k1 in the reward with a gradient", raw, of_answers,
               shaped=in_reward_with_gradient, rule="advantage-not-detached"),
        Recipe("k1 in the reward, wrong sign", centred, of_answers,
               shaped=in_reward_with_the_wrong_sign, rule="kl-sign"),
    ]  # fmt: skip
    return made
