"""The contestants: one policy-gradient loss over logits, computed in the ways people compute it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from importlib.util import find_spec

import torch
from torch import Tensor
from torch.nn import functional

from eligibility.ops.policy_loss import reinforce_loss

Loss = Callable[[Tensor, Tensor, Tensor, float], Tensor]  # logits, action, advantage, entropy_coef

OURS = "eligibility"
COMPILED = "torch.compile"


def categorical(z: Tensor, action: Tensor, advantage: Tensor, beta: float) -> Tensor:
    """torch.distributions, with its validation, as its documentation shows it."""
    dist = torch.distributions.Categorical(logits=z)
    log_prob: Tensor = dist.log_prob(action)  # type: ignore[no-untyped-call]  # torch
    loss = -(advantage * log_prob).mean()
    if not beta:
        return loss
    entropy: Tensor = dist.entropy()  # type: ignore[no-untyped-call]  # torch
    return loss - beta * entropy.mean()


def log_softmax_gather(z: Tensor, action: Tensor, advantage: Tensor, beta: float) -> Tensor:
    """The log-probabilities of all categories, of which one is picked."""
    log_probs = z.log_softmax(-1)
    loss = -(advantage * log_probs.gather(-1, action[:, None])[:, 0]).mean()
    return loss + beta * (log_probs.exp() * log_probs).sum(-1).mean() if beta else loss


def cross_entropy(z: Tensor, action: Tensor, advantage: Tensor, beta: float) -> Tensor:
    """The cross entropy with the action as the label; it has no entropy, which comes on top."""
    loss = (advantage * functional.cross_entropy(z, action, reduction="none")).mean()
    if not beta:
        return loss
    entropy = z.logsumexp(-1) - (z.softmax(-1) * z).sum(-1)
    return loss - beta * entropy.mean()


def trl(z: Tensor, action: Tensor, advantage: Tensor, beta: float) -> Tensor:
    """The functions that TRL's trainers call on logits."""
    from trl.trainer.utils import (  # optional peer
        entropy_from_logits,
        selective_log_softmax,
    )

    loss: Tensor = -(advantage * selective_log_softmax(z, action)).mean()
    return loss - beta * entropy_from_logits(z).mean() if beta else loss


def contestants(with_compile: bool) -> dict[str, Loss]:
    """Name -> loss, of those that can run here."""
    found = {
        "Categorical": categorical,
        "log_softmax + gather": log_softmax_gather,
        "cross_entropy": cross_entropy,
        "TRL": trl,
        OURS: lambda z, action, advantage, beta: reinforce_loss(
            z, action, advantage, entropy_coef=beta
        ),
    }
    missing = left_out(with_compile)
    if COMPILED not in missing:
        found[COMPILED] = torch.compile(log_softmax_gather, dynamic=False)
    return {name: loss for name, loss in found.items() if name not in missing}


def left_out(with_compile: bool) -> dict[str, str]:
    """Name -> why it takes no part."""
    reasons = {
        "Liger Kernel": "its kernels need a GPU",
        "cut-cross-entropy": "it takes hidden states, not logits",
    }
    if find_spec("trl") is None:
        reasons["TRL"] = "not installed (pip install trl)"
    if not with_compile:
        reasons[COMPILED] = "left out, as asked"
    elif not any(map(shutil.which, ("g++", "clang++"))):
        reasons[COMPILED] = "it needs a C++ compiler"
    return reasons
