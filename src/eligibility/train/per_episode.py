"""The gradient of each episode by itself: ``Σ_t ∂(c_t · outputs_t)/∂w``, one row an episode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from eligibility.train.rollout import Rollout

# Episodes go through together until their gradients take this much memory.
_CHUNK_BYTES = 2**26


def per_episode_gradients(
    network: nn.Module, rollout: Rollout, cotangents: Sequence[Tensor]
) -> list[dict[str, Tensor]]:
    """Pull cotangents ``[N, P]`` at the outputs back to the weights, apart for each of B episodes.

    For each cotangent: parameter name → ``[B, *shape]``. One batched backward pass over all
    episodes (``torch.func.vmap`` of ``vjp``): for a linear layer a batched matrix product; one pass
    after the other for a network that vmap cannot take. Memory: B times the weights.
    """
    alive = rollout.alive
    steps, episodes = alive.shape
    padded = []
    for cotangent in cotangents:
        whole = cotangent.new_zeros(steps, episodes, cotangent.shape[-1])
        whole[alive] = cotangent
        padded.append(whole)
    # What was seen after an episode's end may be anything, even NaN; times 0 it must be 0.
    dead = ~alive.reshape(steps, episodes, *[1] * (rollout.observations.ndim - 2))
    observations = torch.where(dead, rollout.observations[:1], rollout.observations)
    parameters = {name: p.detach() for name, p in network.named_parameters()}
    held = {**dict(network.named_buffers())}

    def one(seen: Tensor, *rows: Tensor) -> tuple[dict[str, Tensor], ...]:
        def outputs(weights: dict[str, Tensor]) -> Any:
            return torch.func.functional_call(network, {**held, **weights}, (seen,))

        pull = torch.func.vjp(outputs, parameters)[1]
        return tuple(pull(row)[0] for row in rows)

    numbers = sum(p.numel() * p.element_size() for p in parameters.values()) * len(cotangents)
    chunk = max(1, _CHUNK_BYTES // max(numbers, 1))
    batched = torch.func.vmap(one, in_dims=1, chunk_size=min(chunk, episodes))
    try:
        return list(batched(observations, *padded))
    except RuntimeError:  # an operation of the network that vmap does not know
        return _one_after_the_other(one, observations, padded)


def _one_after_the_other(
    one: Callable[..., tuple[dict[str, Tensor], ...]],
    observations: Tensor,
    cotangents: Sequence[Tensor],
) -> list[dict[str, Tensor]]:
    """The same by a loop over the episodes."""
    rows = zip(observations.unbind(1), *(c.unbind(1) for c in cotangents), strict=True)
    each = [one(*row) for row in rows]
    return [
        {name: torch.stack([gradients[name] for gradients in gathered]) for name in gathered[0]}
        for gathered in zip(*each, strict=True)
    ]
