"""The credit of a loss over tokens: how the weight of each token moves with each reward."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from eligibility.audit.arrays import Array
from eligibility.audit.language.languages import World
from eligibility.audit.language.measurement import TokenLoss, ascents_at
from eligibility.audit.language.token_batch import at_last_token
from eligibility.audit.reporting.report import Credit

# How far a reward is moved. Most weights are linear in it, and then any step is exact; one that is
# divided by a deviation moves by steps, which only a wide one shows.
_STEP = 2.0


def weights_at(loss: TokenLoss, world: World, chosen: Tensor, token_rewards: Tensor) -> Array:
    """[N, B, T] the weight of each token's ∇ log π, for several rewards of one outcome.

    Args:
        loss: Called once for each.
        world: Whose policy is scored.
        chosen: [B] the outcome.
        token_rewards: [N, B, T]; an answer's reward is their sum.
    """
    leaf, batches = world.batches(chosen.expand(len(token_rewards), -1))
    changed = [
        replace(batch, token_rewards=rewards, rewards=rewards.sum(-1))
        for batch, rewards in zip(batches, token_rewards, strict=True)
    ]
    width = batches[0].tokens.shape[1]
    ascent = ascents_at(loss, leaf, changed)[:, :, :width]
    scores = torch.eye(leaf.shape[-1]).double()[batches[0].tokens] - leaf[0, :, :width].softmax(-1)
    return np.asarray(((ascent * scores).sum(-1) / (scores**2).sum(-1)).detach().numpy())


def by_rewards(loss: TokenLoss, world: World, chosen: Tensor) -> Array:
    """[B, T, B] ∂(weight of a token)/∂(reward of an answer), by central differences."""
    batch = world.batch(chosen)
    width = batch.tokens.shape[1]
    rows = torch.eye(len(chosen)).double()
    steps = torch.stack([batch.rewards + sign * _STEP * row for row in rows for sign in (1, -1)])
    rewards = at_last_token(steps, batch.lengths.expand(len(steps), -1), width)
    found = weights_at(loss, world, chosen, rewards)
    return np.moveaxis((found[::2] - found[1::2]) / (2 * _STEP), 0, -1)


def by_token_rewards(loss: TokenLoss, world: World, chosen: Tensor, row: int) -> Array:
    """[T, T] ∂(weight of token t)/∂(reward at token t′) of one answer."""
    batch = world.batch(chosen)
    width = batch.tokens.shape[1]
    steps = torch.zeros(width, *batch.tokens.shape, dtype=torch.float64)
    steps[torch.arange(width), row, torch.arange(width)] = _STEP
    both = torch.cat([batch.token_rewards + steps, batch.token_rewards - steps])
    found = weights_at(loss, world, chosen, both)[:, row]
    return np.asarray(((found[:width] - found[width:]) / (2 * _STEP)).T)


def credit_of(loss: TokenLoss, world: World, chosen: Tensor, own: float) -> Credit:
    """M of one outcome and that of REINFORCE, on one scale.

    Args:
        loss: The loss.
        world: Whose policy is scored.
        chosen: [B] the outcome; best one with answers of several lengths.
        own: What an answer's own reward counts for each of its tokens.
    """
    measured = by_rewards(loss, world, chosen)
    language = world.language
    count = len(chosen)
    names, given, wanted = [], [], []
    for row, answer in enumerate(chosen.tolist()):
        for place, token in enumerate(language.answers[answer]):
            prompt = row // language.group_size + 1
            names.append(f"prompt {prompt}, answer {row + 1}, token {place + 1} ({token})")
            given.append(tuple(measured[row, place].tolist()))
            wanted.append(tuple(own * (column == row) for column in range(count)))
    columns = tuple(f"r{row + 1}" for row in range(count))
    return Credit(tuple(names), columns, tuple(given), tuple(wanted))


def mixed_outcome(world: World, chosen: Tensor) -> Tensor:
    """[B] an outcome whose answers are of the most different lengths, with both kinds of end."""
    lengths = world.language.lengths[chosen].double()
    spread = lengths.view(len(chosen), world.language.prompts, -1).std(-1, correction=0).sum(1)
    first = lengths.view(len(chosen), world.language.prompts, -1).sum(-1)
    uneven = (first[:, :1] - first).abs().sum(1)
    return chosen[int((spread + 0.1 * uneven).argmax())]
