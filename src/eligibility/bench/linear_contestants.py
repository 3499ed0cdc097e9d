"""The contestants through the linear layer: −mean(A log π(token) + β H) in the ways people use.

The peers are called as their own documentation or trainers call them, with their own chunk sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from eligibility.bench.contestants import log_softmax_gather
from eligibility.ops.linear_categorical import linear_statistics
from eligibility.ops.linear_policy_loss import linear_reinforce_loss

Method = Callable[[Tensor, Tensor, Tensor, Tensor, float], Tensor]
CHUNKS = 8


def plain(h: Tensor, w: Tensor, token: Tensor, advantage: Tensor, beta: float) -> Tensor:
    """Logits, whole, in their own dtype: what most programs do."""
    return log_softmax_gather(functional.linear(h, w), token, advantage, beta)


def plain_float32(h: Tensor, w: Tensor, token: Tensor, advantage: Tensor, beta: float) -> Tensor:
    """Logits, whole, and their softmax in float32."""
    return log_softmax_gather(functional.linear(h, w).float(), token, advantage, beta)


def checkpointed(h: Tensor, w: Tensor, token: Tensor, advantage: Tensor, beta: float) -> Tensor:
    """Chunks of rows, whose logits are computed again in the backward pass."""

    def chunk(h: Tensor, token: Tensor, advantage: Tensor) -> Tensor:
        return plain(h, w, token, advantage, beta) * len(token)

    parts = zip(h.chunk(CHUNKS), token.chunk(CHUNKS), advantage.chunk(CHUNKS), strict=True)
    losses = [checkpoint(chunk, *part, use_reentrant=False) for part in parts]
    return torch.stack(losses).sum() / len(token)


def torch_fused(h: Tensor, w: Tensor, token: Tensor, advantage: Tensor, beta: float) -> Tensor:
    """torch's own linear_cross_entropy; it has no entropy."""
    del beta
    from torch.nn.modules.linear_cross_entropy_options import LinearCrossEntropyOptions

    losses = functional.linear_cross_entropy(
        h, w, token, reduction="none", options=LinearCrossEntropyOptions()
    )
    return (advantage * losses.float()).mean()


def cut_cross_entropy(
    h: Tensor, w: Tensor, token: Tensor, advantage: Tensor, beta: float
) -> Tensor:
    """cut-cross-entropy under torch.compile, its way without a GPU; it has no entropy."""
    del beta
    from cut_cross_entropy import (  # type: ignore[import-not-found]  # optional peer
        linear_cross_entropy,
    )

    losses: Tensor = linear_cross_entropy(h, w, token, reduction="none", impl="torch_compile")
    return (advantage * losses.float()).mean()


def liger(h: Tensor, w: Tensor, token: Tensor, advantage: Tensor, beta: float) -> Tensor:
    """Liger Kernel's chunked GRPO loss, which is torch code, on the policy; it has no entropy."""
    del beta
    from liger_kernel.chunked_loss import (  # type: ignore[import-not-found]  # optional peer
        LigerFusedLinearGRPOLoss,
    )

    chunk = max(1, len(token) // CHUNKS)
    node = LigerFusedLinearGRPOLoss(
        beta=0.0, use_ref_model=False, chunk_size=chunk, loss_type="grpo"
    )
    ones = torch.ones(len(token), 1)
    found = node(h[:, None], w, token[:, None], ones, advantage)
    loss: Tensor = found[0]
    return loss


def trl_chunked(h: Tensor, w: Tensor, token: Tensor, advantage: Tensor, beta: float) -> Tensor:
    """The function behind TRL's fused head, by its torch path, in tiles of 4096 x 32768."""
    from trl.kernels import (  # optional peer
        ChunkedLogProbFunction,
    )

    outputs = ("entropy",) if beta else ()
    found = ChunkedLogProbFunction.apply(h, w, None, token, 1.0, 32768, None, 1.0, outputs)
    loss: Tensor = -(advantage * found[0]).mean()
    return loss - beta * found[1].mean() if beta else loss


def ours(h: Tensor, w: Tensor, token: Tensor, advantage: Tensor, beta: float) -> Tensor:
    """This library."""
    return linear_reinforce_loss(h, w, token, advantage, entropy_coef=beta)


def ours_per_token(h: Tensor, w: Tensor, token: Tensor, advantage: Tensor, beta: float) -> Tensor:
    """This library, when log-probabilities are wanted per token."""
    parts = linear_statistics(h, w, token)
    return -(advantage * parts.log_prob + beta * parts.entropy).mean()


METHODS: dict[str, Method] = {
    "plain logits": plain,
    "plain logits, float32 softmax": plain_float32,
    "chunks with checkpointing": checkpointed,
    "torch linear_cross_entropy": torch_fused,
    "cut-cross-entropy, torch.compile": cut_cross_entropy,
    "Liger Kernel, chunked GRPO": liger,
    "TRL, chunked": trl_chunked,
    "eligibility linear_log_prob": ours_per_token,
    "eligibility linear_reinforce_loss": ours,
}
COMPILED = ("cut-cross-entropy, torch.compile", "Liger Kernel, chunked GRPO")
_WITHOUT_ENTROPY = (torch_fused, cut_cross_entropy, liger)
_MODULES = {
    "cut-cross-entropy, torch.compile": "cut_cross_entropy",
    "Liger Kernel, chunked GRPO": "liger_kernel",
    "TRL, chunked": "trl",
}
_ON_GPUS = {
    "cut-cross-entropy, its own kernels": "they are written in Triton and need a GPU",
    "Liger Kernel, fused cross entropy": "its kernels are written in Triton and need a GPU",
}


def methods(entropy_coef: float) -> dict[str, Method]:
    """Name -> method, of those that can run here and know what is asked."""
    missing = left_out(entropy_coef)
    return {name: method for name, method in METHODS.items() if name not in missing}


def left_out(entropy_coef: float) -> dict[str, str]:
    """Name -> why it takes no part."""
    reasons = dict(_ON_GPUS)
    if entropy_coef:
        without = (name for name, method in METHODS.items() if method in _WITHOUT_ENTROPY)
        reasons |= dict.fromkeys(without, "it has no entropy")
    if not hasattr(functional, "linear_cross_entropy"):
        reasons["torch linear_cross_entropy"] = f"torch {torch.__version__} has none"
    for name, module in _MODULES.items():
        if find_spec(module) is None:
            reasons[name] = f"not installed (pip install {module.replace('_', '-')})"
    return reasons
