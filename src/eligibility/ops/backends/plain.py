"""The categorical operations in torch's own operations: the definition that backends must meet.

Each exists twice. The *composition* (`log_pmf`, `entropy`, `kl`, …) is made of operations that
torch differentiates itself, to any order, in every mode, under vmap and torch.compile. The *row*
functions (`row_statistics`, `row_gradient`) compute the same numbers and the closed-form gradient
without recording anything, in pieces that stay in the cache: the interface of a backend.

Everything is computed in float32 or wider, whatever the dtype of the logits.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

_CHUNK_ELEMENTS = 1 << 18  # a megabyte of float32: the logits and the scratch stay in the cache


def compute_dtype(tensor: Tensor) -> torch.dtype:
    """The dtype to compute in: float32 for bfloat16 and float16, else the tensor's own."""
    return torch.promote_types(tensor.dtype, torch.float32)


def log_pmf(
    logits: Float[Tensor, "*batch K"], mask: Bool[Tensor, "*#batch K"] | None = None
) -> Float[Tensor, "*batch K"]:
    """``log softmax(z)`` with −∞, and a gradient of exactly 0, where the mask is False."""
    return torch.log_softmax(masked(logits, mask), -1, dtype=compute_dtype(logits))


def masked(
    logits: Float[Tensor, "*batch K"], mask: Bool[Tensor, "*#batch K"] | None
) -> Float[Tensor, "*batch K"]:
    """The logits, −∞ where the mask is False."""
    return logits if mask is None else torch.where(mask, logits, float("-inf"))


def shaped(
    logits: Float[Tensor, "*batch K"], temperature: float, softcap: float | None
) -> Float[Tensor, "*batch K"]:
    """``c tanh(z/c) / temperature``, the soft-cap c if there is one; −∞ stays what it is."""
    if softcap is None and temperature == 1.0:
        return logits
    z = logits.to(compute_dtype(logits))
    if softcap is not None:
        forbidden = z == float("-inf")
        z = (softcap * torch.tanh(z / softcap)).masked_fill(forbidden, float("-inf"))
    return z if temperature == 1.0 else z / temperature


def at_action(
    rows: Float[Tensor, "*batch K"], action: Int[Tensor, "*batch"]
) -> Float[Tensor, "*batch"]:
    """The entry of each row that was chosen."""
    return rows.gather(-1, action.long().unsqueeze(-1)).squeeze(-1)


def entropy(log_pmf: Float[Tensor, "*batch K"]) -> Float[Tensor, "*batch"]:
    """``−Σ π log π`` with ``0 log 0 = 0``; impossible categories have a gradient of exactly 0."""
    return 0.0 - (log_pmf.exp() * _finite(log_pmf)).sum(-1)  # 0.0, not −0.0, if certain


def kl(
    log_pmf: Float[Tensor, "*batch K"], other: Float[Tensor, "*batch K"]
) -> Float[Tensor, "*batch"]:
    """``Σ π (log π − log π')``: 0 where π = 0, and ∞ where only π' is."""
    pmf = log_pmf.exp()
    return (pmf * torch.where(pmf == 0, 0.0, log_pmf - other)).sum(-1)


def gradient(
    logits: Float[Tensor, "*batch K"],
    action: Int[Tensor, "*batch"],
    mask: Bool[Tensor, "*#batch K"] | None,
    grad_log_prob: Float[Tensor, "*batch"] | None,
    grad_entropy: Float[Tensor, "*batch"] | None,
) -> Float[Tensor, "*batch K"]:
    """``g (y − π) − h π (log π + H)``, itself differentiable: what a double backward records."""
    log_probs = log_pmf(logits, mask)
    probs = log_probs.exp()
    result = torch.zeros_like(probs)
    if grad_log_prob is not None:
        chosen = torch.zeros_like(probs).scatter(-1, action.long().unsqueeze(-1), 1.0)
        result = result + grad_log_prob.unsqueeze(-1) * (chosen - probs)
    if grad_entropy is not None:
        surprise = _finite(log_probs) + entropy(log_probs).unsqueeze(-1)
        result = result - grad_entropy.unsqueeze(-1) * (probs * surprise)
    return result.to(logits.dtype)


def row_statistics(
    logits: Float[Tensor, "N K"],
    action: Int[Tensor, " N"],
    mask: Bool[Tensor, "#N K"] | None,
    with_entropy: bool,
) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"] | None]:
    """log π(a) and, if wanted, the entropy of every row; records nothing."""
    log_prob = logits.new_empty(logits.shape[0], dtype=compute_dtype(logits))
    entropies = torch.empty_like(log_prob) if with_entropy else None
    for part in _chunks(logits):
        log_probs = _log_pmf_of(logits, mask, part)
        log_prob[part] = at_action(log_probs, action[part])
        if entropies is not None:
            entropies[part] = entropy(log_probs)
    return log_prob, entropies


def row_gradient(
    logits: Float[Tensor, "N K"],
    action: Int[Tensor, " N"],
    mask: Bool[Tensor, "#N K"] | None,
    entropies: Float[Tensor, " N"] | None,
    grad_log_prob: Float[Tensor, " N"] | None,
    grad_entropy: Float[Tensor, " N"] | None,
    out: Float[Tensor, "N K"] | None = None,
) -> Float[Tensor, "N K"]:
    """The gradient at the logits, ``g (y − π) − h π (log π + H)``; the only large new tensor.

    ``out`` may be ``logits`` itself.
    """
    dtype = compute_dtype(logits)
    grad_log_prob = None if grad_log_prob is None else grad_log_prob.to(dtype)
    grad_entropy = None if grad_entropy is None else grad_entropy.to(dtype)
    result = out
    if result is None:
        result = torch.empty_like(logits, memory_format=torch.contiguous_format)
    for part in _chunks(logits):
        log_probs = _log_pmf_of(logits, mask, part)
        gradient = log_probs.exp()
        if grad_entropy is not None and entropies is not None:
            scale = _finite(log_probs).add_(entropies[part].unsqueeze(-1))
            scale.mul_(-grad_entropy[part].unsqueeze(-1))
            if grad_log_prob is not None:
                scale.sub_(grad_log_prob[part].unsqueeze(-1))
            gradient.mul_(scale)
        elif grad_log_prob is not None:
            gradient.mul_(-grad_log_prob[part].unsqueeze(-1))
        if grad_log_prob is not None:
            index = action[part].long().unsqueeze(-1)
            gradient.scatter_add_(-1, index, grad_log_prob[part].unsqueeze(-1))
        result[part] = gradient
    return result


def row_objective(
    logits: Float[Tensor, "N K"],
    action: Int[Tensor, " N"],
    mask: Bool[Tensor, "#N K"] | None,
    grad_log_prob: Float[Tensor, " N"],
    grad_entropy: Float[Tensor, " N"] | None,
    out: Float[Tensor, "N K"] | None = None,
) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"] | None, Float[Tensor, "N K"]]:
    """log π(a), entropy and gradient of an objective whose derivatives are known beforehand."""
    log_prob, entropies = row_statistics(logits, action, mask, grad_entropy is not None)
    gradient = row_gradient(logits, action, mask, entropies, grad_log_prob, grad_entropy, out)
    return log_prob, entropies, gradient


def objective(
    grad_log_prob: Float[Tensor, " N"],
    log_prob: Float[Tensor, " N"],
    grad_entropy: Float[Tensor, " N"] | None,
    entropy: Float[Tensor, " N"] | None,
) -> Float[Tensor, ""]:
    """``Σ g log π(a) + h H``; an impossible action with g = 0 contributes 0, not 0 · −∞."""
    value = torch.where(grad_log_prob == 0, 0.0, grad_log_prob * log_prob).sum()
    if grad_entropy is None or entropy is None:
        return value
    return value + (grad_entropy * entropy).sum()


def _finite(log_probs: Tensor) -> Tensor:
    return log_probs.masked_fill(log_probs == float("-inf"), 0.0)


def _log_pmf_of(logits: Tensor, mask: Tensor | None, part: slice) -> Tensor:
    if mask is not None and mask.shape[0] > 1:
        mask = mask[part]
    return log_pmf(logits[part], mask)


def _chunks(logits: Tensor) -> Iterator[slice]:
    rows, categories = logits.shape
    step = max(1, _CHUNK_ELEMENTS // max(1, categories))
    return (slice(start, start + step) for start in range(0, rows, step))
