"""What should not matter for the gradient, changed: by how much the gradient changes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from eligibility.audit.arrays import Array
from eligibility.audit.language.languages import World, make_world
from eligibility.audit.language.measurement import TokenLoss, ascents
from eligibility.audit.language.parameters import BoundLoss
from eligibility.audit.language.token_batch import TokenBatch

_OUTCOMES = 12  # on which the changes are made
_WIDER = 2  # columns of padding that are added
_SHIFT = 1.7  # what is added to every reward


def invariances(bound: BoundLoss, world: World, chosen: Tensor) -> dict[str, float]:
    """The relative change of the gradient under each change, up to a constant factor.

    A change is 0 (to rounding) where the gradient stays as it is, on each of some outcomes:
    ‖g′ − c g‖ / ‖g′‖ over all of them, with one c.

    - ``padding``: other tokens and other logits at the padded positions.
    - ``width``: two more columns of padding.
    - ``row-order``: the answers of each group in the opposite order.
    - ``group-order``: the prompts in the opposite order.
    - ``micro-batches``: the loss averaged over the prompts, one at a time, where these have equally
      many tokens; ``micro-batches-unequal``: where they have not.
    - ``ranks``: the same, and each process computes its own advantages.
    - ``other-prompt``: other answers to the other prompts; the gradient of the first one's answers.
    - ``reward-shift``: a constant added to every reward (no fault without a baseline).
    """
    some = _some(world, chosen)
    plain = _ascents(bound, world, some)
    language = world.language
    padded = replace(world, language=replace(language, pad_token=1))
    wider = replace(world, language=replace(language, pad_to=language.width + _WIDER))
    padded = _with_rows(padded, len(language.states), seed=1000)
    wider = _with_rows(wider, world.logits.shape[1], seed=1001)
    shifted = replace(world, rewards=world.rewards + _SHIFT)
    found = {
        "padding": _change(plain, _ascents(bound, padded, some)),
        "width": _change(plain, _ascents(bound, wider, some)),
        "reward-shift": _change(plain, _ascents(bound, shifted, some)),
    }
    rows = torch.arange(chosen.shape[1]).view(language.prompts, language.group_size)
    if language.group_size > 1:
        found["row-order"] = _change(plain, _ascents(_ordered(bound, rows.flip(1)), world, some))
    if language.prompts > 1:
        found["group-order"] = _change(plain, _ascents(_ordered(bound, rows.flip(0)), world, some))
        found |= _sliced(bound, world, some, plain)
        found["other-prompt"] = _other_prompt(bound, world, some, plain)
    return found


def order_matters(loss: TokenLoss, world: World, chosen: Tensor) -> bool:
    """Whether the order of the rows within groups changes any gradient of some outcomes."""
    rows = torch.arange(chosen.shape[1]).view(world.language.prompts, -1)
    generator = torch.Generator().manual_seed(0)
    some = _some(world, chosen)
    plain = _ascents(loss, world, some)
    for _ in range(3):
        order = rows[:, torch.randperm(rows.shape[1], generator=generator)]
        if _change(plain, _ascents(_ordered(loss, order), world, some)) > 1e-10:
            return True
    return False


def _some(world: World, chosen: Tensor) -> Tensor:
    """A few possible outcomes, spread over all."""
    prompt = torch.arange(world.language.prompts).repeat_interleave(world.language.group_size)
    possible = chosen[world.probabilities[prompt, chosen].prod(1) > 0]
    return possible[:: max(len(possible) // _OUTCOMES, 1)]


def _ascents(loss: TokenLoss, world: World, chosen: Tensor) -> Array:
    return np.asarray(ascents(loss, world, chosen).numpy())


def _change(plain: Array, other: Array) -> float:
    """‖other − c plain‖/‖other‖ with the best c, over the outcomes where both are numbers."""
    width = min(plain.shape[2], other.shape[2])
    second = other[:, :, :width].reshape(len(other), -1)
    first = plain[:, :, :width].reshape(len(plain), -1)
    beyond = other[:, :, width:].reshape(len(other), -1)
    kept = np.isfinite(first).all(1) & np.isfinite(second).all(1)
    first, second, beyond = first[kept], second[kept], beyond[kept]
    size = float(np.sqrt((second**2).sum() + (beyond**2).sum()))
    if size == 0.0:
        return 0.0 if not first.any() else 1.0
    square = float((first**2).sum())
    factor = float((first * second).sum()) / square if square else 0.0
    left = np.sqrt(((second - factor * first) ** 2).sum() + (beyond**2).sum())
    return float(left) / size


def _with_rows(world: World, start: int, seed: int) -> World:
    """The world with other rows in its tables from ``start`` on: for padding or new columns."""
    other = make_world(world.language, seed, world.behaviour)
    return world.with_tables(
        lambda name, own: torch.cat([own[:, :start], getattr(other, name)[:, start:]], dim=1)
    )


def _ordered(loss: TokenLoss, rows: Tensor) -> TokenLoss:
    """The loss of the batch with its rows in another order; gradients stay with their rows."""
    return lambda batch: loss(batch.rows(rows.reshape(-1)))


def _sliced(bound: BoundLoss, world: World, some: Tensor, plain: Array) -> dict[str, float]:
    """One prompt at a time: in one process, and in several that know nothing of each other."""
    size = world.language.group_size
    sliced = _ascents(replace(bound, micro_batch=size), world, some)
    tokens = world.language.lengths[some].view(len(some), -1, size).sum(-1)
    equal = np.asarray((tokens == tokens[:, :1]).all(1).numpy())

    def of_ranks(batch: TokenBatch) -> Tensor:
        starts = range(0, batch.tokens.shape[0], size)
        return torch.stack([bound(batch.rows(slice(n, n + size))) for n in starts]).mean()

    found = {"ranks": _change(plain, _ascents(of_ranks, world, some))}
    for name, kept in (("micro-batches", equal), ("micro-batches-unequal", ~equal)):
        if kept.any():
            found[name] = _change(plain[kept], sliced[kept])
    return found


def _other_prompt(bound: BoundLoss, world: World, some: Tensor, plain: Array) -> float:
    size = world.language.group_size
    other = some.clone()
    other[:, size:] = (other[:, size:] + 1) % len(world.language.answers)
    changed = _ascents(bound, world, other)
    return _change(plain[:, :size], changed[:, :size])
