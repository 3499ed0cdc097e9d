"""The gradient of a loss on every outcome, at the logits of every position."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from eligibility.audit.arrays import Array, Booleans, Integers
from eligibility.audit.language.directions import Answers, directions
from eligibility.audit.language.languages import Language, World
from eligibility.audit.language.outcomes import Outcomes
from eligibility.audit.language.token_batch import TokenBatch

TokenLoss = Callable[[TokenBatch], Tensor]
# Relative to rewards: what terms of about 1 that cancel leave of a gradient in double precision.
_ROUNDING = 1e-14


def ascents(loss: TokenLoss, world: World, chosen: Tensor) -> Tensor:
    """[N, B, W, V] the negative gradients of a loss by the logits of every position."""
    language = world.language
    found = torch.zeros(*chosen.shape, language.width, language.vocabulary, dtype=torch.float64)
    widest = language.lengths[chosen].amax(-1)
    if language.pad_to is not None:
        widest = torch.full_like(widest, language.pad_to)
    for width in sorted(set(widest.tolist())):
        leaf, batches = world.batches(chosen[widest == width])
        found[widest == width, :, :width] = ascents_at(loss, leaf, batches)[:, :, :width]
    return found


def prompt_share(loss: TokenLoss, world: World, outcome: Tensor) -> float:
    """The share of a batch's gradient that lies at the logits of its prompts' positions."""
    leaf, batches = world.batches(outcome[None])
    found = np.nan_to_num(ascents_at(loss, leaf, batches).numpy())
    return share(found[:, :, batches[0].tokens.shape[1] :], found)


def share(part: Array, whole: Array) -> float:
    """‖part‖ / ‖whole‖; 0 if the whole is 0."""
    size = float(np.linalg.norm(whole))
    return float(np.linalg.norm(part)) / size if size else 0.0


def ascents_at(loss: TokenLoss, leaf: Tensor, batches: Sequence[TokenBatch]) -> Tensor:
    """The same for batches that are there already, by the leaf where their graphs begin.

    One backward pass serves all: no two of them share an element of the leaf. Gradients that are
    all rounding, next to the rewards, are 0.
    """
    values = [loss(batch) for batch in batches]
    differentiable = [value for value in values if value.requires_grad]
    if not differentiable:
        return torch.zeros_like(leaf)
    total = torch.stack(differentiable).sum()
    (gradient,) = torch.autograd.grad(total, leaf, allow_unused=True)
    rewards = max(float(batch.rewards.abs().max()) for batch in batches)
    if gradient is None or float(gradient.abs().max()) <= _ROUNDING * rewards:
        return torch.zeros_like(leaf)
    return -gradient


@dataclass(frozen=True, eq=False)
class Observed:
    """What a loss did on every outcome: arrays over worlds and outcomes together.

    ``N`` = worlds × outcomes, world after world; ``W`` the widest batch.

    Attributes:
        outcomes: What was run.
        chosen: [N, B] which answer each row is.
        world: [N] index of the world.
        probability: [N] of the outcome in its world.
        ascent: [N, B, W, V] negative gradients by the logits; 0 where a batch is narrower.
        width: [N] width of each batch.
        tokens: [N, B, W].
        mask: [N, B, W] booleans: the answers' own positions.
        lengths: [N, B].
        ended: [N, B] booleans.
        position: [N, B, W] row of the policy's table.
        logits: [N, B, W, V] of the policy.
        ref_logits: [N, B, W, V].
        drawn: [N, B, W] log-probabilities with which the tokens were drawn.
        rewards: [N, B].
    """

    outcomes: Outcomes
    chosen: Integers
    world: Integers
    probability: Array
    ascent: Array
    width: Integers
    tokens: Integers
    mask: Booleans
    lengths: Integers
    ended: Booleans
    position: Integers
    logits: Array
    ref_logits: Array
    drawn: Array
    rewards: Array

    @property
    def language(self) -> Language:
        """The sizes."""
        return self.outcomes.language

    @property
    def complete(self) -> bool:
        """Whether each outcome that can be drawn has a finite gradient."""
        every = self.probability.sum() / len(self.outcomes.worlds)
        return bool(self.finite.all()) and abs(float(every) - 1.0) < 1e-9

    @property
    def finite(self) -> Booleans:
        """[N] whether the gradient is finite."""
        return np.asarray(np.isfinite(self.ascent).all(axis=(1, 2, 3)))

    @cached_property
    def probs(self) -> Array:
        """[N, B, W, V] of the policy."""
        return np.asarray(np.exp(_log_softmax(self.logits)))

    @cached_property
    def ref_probs(self) -> Array:
        """[N, B, W, V] of the reference."""
        return np.asarray(np.exp(_log_softmax(self.ref_logits)))

    @cached_property
    def scores(self) -> Array:
        """[N, B, W, V] ∂ log π(token)/∂logits: the eligibility, one-hot minus probabilities."""
        return np.eye(self.language.vocabulary)[self.tokens] - self.probs

    @cached_property
    def log_probs(self) -> Array:
        """[N, B, W] of the tokens under the policy."""
        return _of_tokens(_log_softmax(self.logits), self.tokens)

    @cached_property
    def ref_log_probs(self) -> Array:
        """[N, B, W] of the tokens under the reference."""
        return _of_tokens(_log_softmax(self.ref_logits), self.tokens)

    @cached_property
    def odd(self) -> Array:
        """[N, B, W, V] the part of ``ascent`` that changes its sign with the rewards."""
        return (self.ascent - self._negated) / 2

    @cached_property
    def even(self) -> Array:
        """[N, B, W, V] the part that does not: what no reward has a part in."""
        return (self.ascent + self._negated) / 2

    @property
    def _negated(self) -> Array:
        """``ascent`` of the outcome with the rewards of the other sign."""
        pairs = self.ascent.reshape(-1, 2, len(self.outcomes.chosen), *self.ascent.shape[1:])
        return np.asarray(pairs[:, ::-1].reshape(self.ascent.shape))

    @property
    def padded(self) -> Array:
        """[N, B, W, V] the part of ``ascent`` at padded positions."""
        return np.asarray(np.where(self.mask[..., None], 0.0, self.ascent))

    def expected(self, ascent: Array) -> Array:
        """[worlds, P, S, V] E[g] by the policy's tables of each world, of per-outcome ascents."""
        language = self.language
        count = len(self.outcomes.worlds)
        table = np.zeros((count, language.prompts, language.table_rows, language.vocabulary))
        prompt = np.arange(ascent.shape[1]) // language.group_size
        where = (self.world[:, None, None], prompt[None, :, None], self.position)
        np.add.at(table, where, self.probability[:, None, None, None] * ascent)
        return table


def observe(loss: TokenLoss, outcomes: Outcomes) -> Observed:
    """Run a loss on every outcome of every world."""
    measured = torch.stack([ascents(loss, world, outcomes.chosen) for world in outcomes.worlds])
    return observed_of(outcomes, measured)


def observed_of(outcomes: Outcomes, measured: Tensor) -> Observed:
    """[worlds, O, B, W, V] the negative gradients of every outcome, and what they belong to.

    Where a sampler that cuts tokens off never draws an outcome, its gradient says nothing.
    """
    language, worlds, chosen = outcomes.language, outcomes.worlds, outcomes.chosen
    prompt = torch.arange(language.prompts).repeat_interleave(language.group_size)
    repeated = chosen.repeat(len(worlds), 1)
    lengths = language.lengths[repeated]
    tokens, position = language.tokens[repeated], language.positions[repeated]
    widest = lengths.amax(1) if language.pad_to is None else lengths.amax(1) * 0 + language.width
    ended = tokens.gather(2, lengths[..., None] - 1)[..., 0] == 0

    def at_positions(name: str) -> Array:
        tables = [
            getattr(world, name)[prompt[:, None], language.positions[chosen]] for world in worlds
        ]
        return np.asarray(torch.cat(tables).numpy())

    probability = torch.stack([outcomes.probabilities(world) for world in worlds])
    never = (probability == 0.0)[..., None, None, None]
    return Observed(
        outcomes=outcomes,
        chosen=repeated.numpy(),
        world=np.repeat(np.arange(len(worlds)), len(chosen)),
        probability=probability.flatten().numpy(),
        ascent=measured.masked_fill(never, 0.0).flatten(0, 1).numpy(),
        width=widest.numpy(),
        tokens=tokens.numpy(),
        mask=(torch.arange(language.width) < lengths[..., None]).numpy(),
        lengths=lengths.numpy(),
        ended=ended.numpy(),
        position=position.numpy(),
        logits=at_positions("logits"),
        ref_logits=at_positions("ref_logits"),
        drawn=_of_tokens(at_positions("drawn"), tokens.numpy()),
        rewards=torch.cat([world.rewards[prompt, chosen] for world in worlds]).numpy(),
    )


def true_directions(outcomes: Outcomes, temperature: float = 1.0) -> dict[str, Array]:
    """[worlds, P, S, V] each: the named directions by the tables of each world's policy.

    Args:
        outcomes: The worlds.
        temperature: Temperature of the intended policy and of the reference.
    """
    found = [_directions_of(world, temperature) for world in outcomes.worlds]
    return {name: np.stack([each[name] for each in found]) for name in found[0]}


def _directions_of(world: World, temperature: float) -> dict[str, Array]:
    language = world.language
    table = world.logits.clone().requires_grad_()
    mask = (torch.arange(language.width) < language.lengths[:, None]).double()
    prompts = [
        Answers(
            log_probs=(table[prompt, language.positions] / temperature).log_softmax(-1),
            ref_log_probs=(world.ref_logits[prompt, language.positions] / temperature).log_softmax(
                -1
            ),
            tokens=language.tokens,
            mask=mask,
            rewards=world.rewards[prompt],
            drawn=world.probabilities[prompt],
        )
        for prompt in range(language.prompts)
    ]
    named = directions(prompts, [table])
    return {name: each.reshape(table.shape).numpy() for name, each in named.items()}


def _of_tokens(log_probs: Array, tokens: Integers) -> Array:
    return np.take_along_axis(log_probs, tokens[..., None], axis=-1)[..., 0]


def _log_softmax(logits: Array) -> Array:
    shifted = logits - logits.max(-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)))
