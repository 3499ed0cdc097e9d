"""The benchmark through the linear layer: hidden states and unembedding to loss and gradients.

The yardstick is the three matrix products that no method can avoid: logits, the gradient of the
hidden states, the gradient of the weight. Every contestant computes −mean(A log π(token)), with an
entropy bonus β minus β times the mean entropy, and both gradients. Memory is the growth of the peak
resident size in a process of its own, the two gradients included.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from eligibility.bench.measurement import resident_growth
from eligibility.errors import InvalidValueError
from eligibility.ops.linear_categorical import linear_reinforce_loss, linear_statistics

Method = Callable[[Tensor, Tensor, Tensor, Tensor, float], Tensor]
Given = tuple[Tensor, Tensor, Tensor, Tensor]  # hidden [N, D], weight [V, D], token, advantage [N]
CHUNKS = 8
PRODUCTS = "three bare products"


@dataclass(frozen=True)
class Size:
    """N tokens, a vocabulary of V, D features."""

    tokens: int
    vocabulary: int
    features: int


@dataclass(frozen=True)
class LinearFigure:
    """One method: what it costs, and its error."""

    method: str
    seconds: float
    ratio: float  # to the three bare products, in the same rounds
    extra_peak_mib: float | None
    gradient_error: float  # of the hidden states, relative rms, against float32 inputs


def loss_of_logits(z: Tensor, token: Tensor, advantage: Tensor, beta: float) -> Tensor:
    """The sum over rows, in the dtype of the logits: what most programs do."""
    log_probs = z.log_softmax(-1)
    loss = -(advantage * log_probs.gather(-1, token[:, None])[:, 0].float()).sum()
    if beta:
        loss = loss + beta * (log_probs.exp() * log_probs).sum(-1).float().sum()
    return loss


def plain(h: Tensor, w: Tensor, token: Tensor, advantage: Tensor, beta: float) -> Tensor:
    """Logits, whole."""
    return loss_of_logits(functional.linear(h, w), token, advantage, beta) / len(token)


def plain_float32(h: Tensor, w: Tensor, token: Tensor, advantage: Tensor, beta: float) -> Tensor:
    """Logits, whole, and their softmax in float32."""
    z = functional.linear(h, w).float()
    return loss_of_logits(z, token, advantage, beta) / len(token)


def checkpointed(h: Tensor, w: Tensor, token: Tensor, advantage: Tensor, beta: float) -> Tensor:
    """Chunks of rows, whose logits are computed again in the backward pass."""

    def chunk(h: Tensor, token: Tensor, advantage: Tensor) -> Tensor:
        return loss_of_logits(functional.linear(h, w), token, advantage, beta)

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


def ours(h: Tensor, w: Tensor, token: Tensor, advantage: Tensor, beta: float) -> Tensor:
    """This library."""
    return linear_reinforce_loss(h, w, token, advantage, entropy_coef=beta)


def ours_per_token(h: Tensor, w: Tensor, token: Tensor, advantage: Tensor, beta: float) -> Tensor:
    """This library, when log-probabilities are wanted per token."""
    parts = linear_statistics(h, w, token)
    return -(advantage * parts.log_prob + beta * parts.entropy).mean()


_METHODS: dict[str, Method] = {
    "plain logits": plain,
    "plain logits, float32 softmax": plain_float32,
    "chunks with checkpointing": checkpointed,
    "torch linear_cross_entropy": torch_fused,
    "cut-cross-entropy, torch.compile": cut_cross_entropy,
    "Liger Kernel, chunked": liger,
    "eligibility linear_log_prob": ours_per_token,
    "eligibility linear_reinforce_loss": ours,
}
_WITHOUT_ENTROPY = (torch_fused, cut_cross_entropy, liger)
_PACKAGES = {
    "cut-cross-entropy, torch.compile": "cut_cross_entropy",
    "Liger Kernel, chunked": "liger_kernel",
}


def methods(entropy_coef: float) -> dict[str, Method]:
    """Name -> method, of those that can run here and know what is asked."""
    missing = left_out(entropy_coef)
    return {name: method for name, method in _METHODS.items() if name not in missing}


def left_out(entropy_coef: float) -> dict[str, str]:
    """Name -> why it takes no part."""
    reasons = {
        name: f"not installed (pip install {package.replace('_', '-')})"
        for name, package in _PACKAGES.items()
        if find_spec(package) is None
    }
    if entropy_coef:
        without = (name for name, method in _METHODS.items() if method in _WITHOUT_ENTROPY)
        reasons |= dict.fromkeys(without, "it has no entropy")
    return reasons


def read_size(text: str) -> Size:
    """``"2048x32768x1024"`` -> size.

    Raises:
        InvalidValueError: It is not N x V x D.
    """
    numbers = text.lower().replace("×", "x").split("x")
    if len(numbers) != 3 or not all(n.isdecimal() and int(n) > 0 for n in numbers):
        raise InvalidValueError(
            "`--linear`", repr(text), "tokens x vocabulary x features", "write 512x8192x256"
        )
    return Size(*map(int, numbers))


def new_inputs(size: Size, dtype: torch.dtype) -> Given:
    """Hidden states of unit variance and logits of unit variance."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(size.tokens, size.features, generator=generator).to(dtype)
    weight = torch.randn(size.vocabulary, size.features, generator=generator)
    weight = (weight / size.features**0.5).to(dtype)
    token = torch.randint(size.vocabulary, (size.tokens,), generator=generator)
    advantage = torch.randn(size.tokens, generator=generator)
    return hidden.requires_grad_(), weight.requires_grad_(), token, advantage


def step(method: Method, given: Given, beta: float) -> None:
    """Forward and backward from empty gradients."""
    given[0].grad = given[1].grad = None
    method(*given, beta).backward()  # type: ignore[no-untyped-call]  # torch


def three_products(hidden: Tensor, weight: Tensor) -> None:
    """What cannot be avoided; the logits stand in for their gradient."""
    with torch.no_grad():
        z = hidden @ weight.t()
        _ = z @ weight
        _ = z.t() @ hidden


def measure_linear(
    size: Size,
    dtype: str,
    entropy_coef: float,
    *,
    rounds: int,
    clock: Callable[[], float] = time.process_time,
    with_memory: bool = True,
    only: str = "",
) -> list[LinearFigure]:
    """Every method, taking turns with the bare products."""
    given = new_inputs(size, getattr(torch, dtype))
    chosen = {name: method for name, method in methods(entropy_coef).items() if only in name}
    truth = _truth(given, entropy_coef)
    times: dict[str, list[float]] = {name: [] for name in (PRODUCTS, *chosen)}
    errors = {PRODUCTS: 0.0}
    for round_number in range(rounds + 1):
        steps: dict[str, Callable[[], None]] = {PRODUCTS: partial(three_products, *given[:2])}
        steps |= {name: partial(step, call, given, entropy_coef) for name, call in chosen.items()}
        for name, call in steps.items():
            start = clock()
            call()
            if round_number:  # the first one warms up
                times[name].append(clock() - start)
            elif name != PRODUCTS:
                assert given[0].grad is not None
                error = (given[0].grad.float() - truth).norm() / truth.norm()
                errors[name] = float(error)
    base = times[PRODUCTS]
    peaks = _peaks(list(chosen), size, dtype, entropy_coef) if with_memory else {}
    return [
        LinearFigure(
            name,
            statistics.median(taken),
            statistics.median(a / b for a, b in zip(taken, base, strict=True)),
            peaks.get(name),
            errors[name],
        )
        for name, taken in times.items()
    ]


def _truth(given: Given, beta: float) -> Tensor:
    """The gradient of the hidden states from the same numbers in float32."""
    hidden, weight = (x.detach().float().requires_grad_() for x in given[:2])
    step(plain, (hidden, weight, *given[2:]), beta)
    assert hidden.grad is not None
    return hidden.grad


def _peaks(names: list[str], size: Size, dtype: str, beta: float) -> dict[str, float]:
    """The growth of each one's peak resident size during one step, in MiB.

    Each has a process of its own, whose memory nobody used before: a fork of one that has only
    imported torch, which takes longer than the step.
    """
    if not Path("/proc/self/clear_refs").exists():
        return {}
    numbers = map(str, (size.tokens, size.vocabulary, size.features, dtype, beta))
    command = [sys.executable, "-m", __name__, *numbers, *names]
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return dict(zip(names, map(float, found.split()), strict=True))


def _measure_memory(name: str, size: Size, dtype: str, beta: float) -> float:
    torch.set_num_threads(1)
    given = new_inputs(size, getattr(torch, dtype))
    method = _METHODS[name]
    if method is cut_cross_entropy or method is liger:
        step(method, given, beta)  # compiles
        given[0].grad = given[1].grad = None
    else:
        small = [x[:16].detach().requires_grad_(x.is_floating_point()) for x in given]
        step(method, (small[0], small[1], small[2] % 16, small[3].detach()), beta)
    return resident_growth(partial(step, method, given, beta)) / 2**20


def _in_a_fork(name: str, size: Size, dtype: str, beta: float) -> None:
    """Measure in a child process, which writes the figure on standard output."""
    child = os.fork()
    if not child:
        os.write(1, f"{_measure_memory(name, size, dtype, beta)}\n".encode())
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        raise SystemExit(f"measuring {name} failed")


if __name__ == "__main__":
    _size, _dtype, _beta = Size(*map(int, sys.argv[1:4])), sys.argv[4], float(sys.argv[5])
    for _name in sys.argv[6:]:
        _in_a_fork(_name, _size, _dtype, _beta)
