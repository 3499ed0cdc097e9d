"""What one of several processes finds from its part of a vocabulary, and one from all of it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

import eligibility as el
from eligibility.errors import InvalidTypeError, InvalidValueError
from eligibility.ops.backends import cpu
from eligibility.ops.linear import sweep

N, V, D, WIDTH = 7, 13, 4, 3

CASES: dict[str, dict[str, Any]] = {
    "reinforce": {},
    "entropy": {"entropy_coef": 0.3},
    "clipped": {"clip": (0.1, 0.2)},
    "k3": {"clip": (0.1, 0.2), "kl_coef": 0.4, "entropy_coef": 0.1},
    "z-loss": {"z_loss_coef": 0.1},
    "exact": {"kl_coef": 0.4},
    "shaped": {"bias": True, "temperature": 0.8, "softcap": 3.0, "entropy_coef": 0.1},
    "shared": {"mask": "shared", "entropy_coef": 0.3},
    "dense": {"mask": "rows", "entropy_coef": 0.3, "z_loss_coef": 0.1},
    "sparse": {"mask": "sparse", "kl_coef": 0.4, "clip": (0.1, 0.2), "kl_estimator": "exact"},
    "everything": {
        "mask": "rows", "bias": True, "temperature": 0.8, "softcap": 3.0, "entropy_coef": 0.1,
        "kl_coef": 0.4, "z_loss_coef": 0.1, "clip": (0.1, 0.2), "kl_estimator": "exact",
    },
    "plain": {"mask": "rows", "bias": True, "entropy_coef": 0.1, "clip": (0.1, 0.2)},
    "chunks": {"mask": "rows", "entropy_coef": 0.1, "kl_coef": 0.4},
    "sum": {"reduction": "sum", "entropy_coef": 0.3},
    "none": {"reduction": "none", "entropy_coef": 0.3, "kl_coef": 0.4},
    "sequence": {"reduction": "sequence", "clip": (0.1, 0.2), "z_loss_coef": 0.1},
}  # fmt: skip


def problem(dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(5)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    token = torch.randint(V, (N,), generator=generator)
    token[2] = -100
    mask = torch.rand(N, V, generator=generator) < 0.5
    mask[:, 3] = True
    mask[0, :8], mask[1, 8:], mask[3, 1:9] = False, False, False  # whole parts allow nothing
    token[0], token[1], token[3] = 11, 4, 0
    mask[torch.arange(N), token.clamp_min(0)] = True
    mask[4:, 0] = False  # the column that stands in where a token is elsewhere
    token = torch.where((token == 0) & (torch.arange(N) >= 4), 3, token)
    weights = torch.rand(N, generator=generator).to(dtype)
    weights[5] = 0.0
    return {
        "hidden": normal(N, D),
        "weight": normal(V, D),
        "bias": normal(V),
        "upstream": normal(3, N),
        "token": token,
        "mask": mask,
        "advantage": normal(N),
        "token_weight": weights,
        "old_log_prob": normal(N) - 2,
        "ref_log_prob": normal(N) - 2,
        "ref_hidden": normal(N, WIDTH),
        "ref_weight": normal(V, WIDTH),
    }


def shards(ranks: int) -> list[slice]:
    """Consecutive parts of different sizes; with four ranks one has a single token."""
    bounds = {1: [0, V], 2: [0, 8, V], 4: [0, 1, 6, 9, V]}[ranks]
    return [slice(a, b) for a, b in pairwise(bounds)]


def loss_of(
    name: str, given: dict[str, Tensor], part: slice, leaves: list[Tensor], group: Any
) -> Tensor:
    """One of the cases, from the columns of ``part``."""
    options = dict(CASES[name])
    hidden, weight, bias = leaves
    if options.pop("bias", False):
        options["bias"] = bias
    kind = options.pop("mask", None)
    if kind == "shared":
        options["mask"] = given["mask"][4:].any(0)[part] | (torch.arange(V) % 2 == 0)[part]
    elif kind is not None:
        mask = given["mask"][:, part]
        options["mask"] = mask if kind == "rows" else mask.double().to_sparse_csr()
    token = given["token"]
    if kind == "shared":
        token = torch.where(token >= 0, token // 2 * 2, token)
    if options.get("kl_coef") and name != "k3":
        options["reference"] = el.LinearReference(given["ref_hidden"], given["ref_weight"][part])
    options |= {"token_weight": given["token_weight"], "group": group}
    if "clip" not in options:
        return el.linear_reinforce_loss(hidden, weight, token, given["advantage"], **options)
    if name == "k3":
        options["ref_log_prob"] = given["ref_log_prob"]
    return el.linear_clipped_policy_loss(
        hidden, weight, token, given["advantage"], given["old_log_prob"], **options
    )


def losses(part: slice, group: Any, dtype: torch.dtype = torch.float64) -> dict[str, list[Tensor]]:
    """Name -> the loss, and its gradients by hidden states, weight and, if it is there, bias."""
    found = {}
    for name in CASES:
        given = problem(dtype)
        leaves = [given["hidden"], given["weight"][part].clone(), given["bias"][part].clone()]
        leaves = [leaf.requires_grad_() for leaf in leaves]
        chunk = 3 * 2 * V * dtype.itemsize if name == "chunks" else 1 << 25
        library = None if name == "plain" else cpu._library
        with (
            mock.patch.multiple(sweep, _CHUNK_BYTES=chunk, _CHUNK_SHARE=1 << 30),
            mock.patch.object(cpu, "_library", library),
        ):
            loss = loss_of(name, given, part, leaves, group)
            without = leaves if "bias" in CASES[name] else leaves[:2]
            upstream = torch.arange(1.0, 1 + loss.numel(), dtype=loss.dtype).view(loss.shape)
            found[name] = [loss.detach(), *torch.autograd.grad(loss, without, 2 * upstream)]
    return found


def total(result: el.LinearStatistics, upstream: Tensor) -> Tensor:
    parts = torch.stack([result.log_prob, result.entropy, result.log_normalizer])
    return (parts * upstream).sum()


def values(result: el.LinearStatistics) -> Tensor:
    return torch.stack([result.log_prob, result.entropy, result.log_normalizer]).detach()


def measure(ranks: int, rank: int, group: dist.ProcessGroup) -> dict[str, Any]:
    """Everything that one rank of ``group`` finds, from its part."""
    given, part = problem(), shards(ranks)[rank]
    hidden = given["hidden"].requires_grad_()
    logits = (given["hidden"] @ given["weight"].T)[:, part].detach().requires_grad_()
    over_logits = el.vocab_parallel_statistics(logits, given["token"], group=group)
    (at_logits,) = torch.autograd.grad(total(over_logits, given["upstream"]), logits)
    for call in (el.vocab_parallel_statistics, el.linear_log_prob):
        inputs = (logits,) if call is el.vocab_parallel_statistics else (hidden, given["weight"])
        size = V if call is el.vocab_parallel_statistics else V * ranks
        with pytest.raises(
            InvalidValueError, match=f"the shards of all ranks together have V = {size}"
        ):
            call(*inputs, given["token"] + V * ranks, group=group)
    weight = given["weight"][part].clone().requires_grad_()
    result = el.vocab_parallel_linear_statistics(hidden, weight, given["token"], group=group)
    gradients = torch.autograd.grad(total(result, given["upstream"]), (hidden, weight))
    refuse_higher_derivatives(hidden, weight, given, group)
    return {
        "values": values(result),
        "gradients": gradients,
        "logits_values": values(over_logits),
        "logits": at_logits,
        "losses": losses(part, group),
        "float32": losses(part, group, torch.float32),
        "products": products(part, given, group),
    }


def refuse_higher_derivatives(
    hidden: Tensor, weight: Tensor, given: dict[str, Tensor], group: dist.ProcessGroup
) -> None:
    result = el.linear_statistics(hidden, weight, given["token"], group=group)
    (first,) = torch.autograd.grad(result.entropy.sum(), hidden, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()

    def loss(hidden: Tensor) -> Tensor:
        return el.linear_reinforce_loss(
            hidden, weight, given["token"], given["advantage"], group=group
        )

    with pytest.raises(InvalidValueError, match="backward pass with create_graph, expected first"):
        torch.autograd.grad(loss(hidden), hidden, create_graph=True)
    with pytest.raises(InvalidValueError, match="a transformed, traced or forward-mode call"):
        torch.func.grad(loss)(hidden.detach())


def products(part: slice, given: dict[str, Tensor], group: dist.ProcessGroup) -> list[int]:
    """Operations of a loss, and of the loss per token, for all tokens."""
    found = []
    for reduction in ("mean", "none"):
        leaves = [given["hidden"].detach(), given["weight"][part].clone()]
        leaves = [leaf.requires_grad_() for leaf in leaves]
        with FlopCounterMode(display=False) as counter:
            el.linear_clipped_policy_loss(
                *leaves, given["token"].clamp_min(0), given["advantage"], given["old_log_prob"],
                clip=(1.0, 1e9), entropy_coef=0.1, reduction=reduction, group=group,
            ).sum().backward()  # fmt: skip
        found.append(counter.get_total_flops())
    return found


def dtensors(group: dist.ProcessGroup) -> list[Tensor]:
    """The loss and its gradients by hidden states, weight and bias, put together again."""
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    given, mesh = problem(), DeviceMesh.from_group(group, "cpu")

    def shard(name: str) -> Any:
        return distribute_tensor(given[name].detach(), mesh, [Shard(0)])

    hidden = given["hidden"].requires_grad_()
    weight, bias = shard("weight").requires_grad_(), shard("bias").requires_grad_()
    reference = el.LinearReference(given["ref_hidden"], shard("ref_weight"))
    loss = el.linear_reinforce_loss(
        hidden, weight, given["token"], given["advantage"], bias=bias, entropy_coef=0.1,
        reference=reference, kl_coef=0.2, group=mesh,
    )  # fmt: skip
    loss.backward()
    replicated = weight.detach().redistribute(mesh, [Replicate()])
    with pytest.raises(InvalidTypeError, match=r"expected Shard\(0\) over the processes of"):
        el.linear_statistics(hidden, replicated, given["token"], group=group)
    # Without a group the weight is gathered; every process has the same batch, so the mean is it.
    weight.grad = None
    again = el.linear_reinforce_loss(
        given["hidden"].detach(), weight, given["token"], given["advantage"]
    )
    again.backward()
    plain = given["weight"].detach().requires_grad_()
    el.linear_reinforce_loss(
        given["hidden"].detach(), plain, given["token"], given["advantage"]
    ).backward()
    torch.testing.assert_close(weight.grad.full_tensor(), plain.grad, rtol=1e-12, atol=1e-13)
    weight.grad = None
    loss = el.linear_reinforce_loss(
        hidden, weight, given["token"], given["advantage"], bias=bias, entropy_coef=0.1,
        reference=reference, kl_coef=0.2, group=group,
    )  # fmt: skip
    hidden.grad = bias.grad = None
    loss.backward()
    assert hidden.grad is not None
    return [loss.detach(), hidden.grad, weight.grad.full_tensor(), bias.grad.full_tensor()]


def main(arguments: list[str]) -> None:
    """One of four processes; the first two also share a vocabulary between them alone."""
    (folder,) = arguments
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    pair = dist.new_group([0, 1])
    everyone = dist.group.WORLD
    assert everyone is not None
    found: dict[Any, Any] = {4: measure(4, rank, everyone)}
    if rank < 2:
        found |= {2: measure(2, rank, pair), "dtensors": dtensors(pair)}
    torch.save(found, f"{folder}/{rank}.pt")
