"""A sharded vocabulary in two and four real processes equals the whole in one."""

from __future__ import annotations

import socket
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor

import eligibility as el
from eligibility.errors import InvalidTypeError, InvalidValueError
from eligibility.ops.vocab_parallel import (
    vocab_parallel_linear_statistics,
    vocab_parallel_statistics,
)

N, V, D = 7, 13, 4
OPTIONS = {"temperature": 0.8, "softcap": 3.0}


def problem() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(5)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    token = torch.randint(V, (N,), generator=generator)
    token[2] = -100
    return {
        "hidden": normal(N, D),
        "weight": normal(V, D),
        "bias": normal(V),
        "upstream": normal(3, N),
        "token": token,
    }


def total(result: el.LinearStatistics, upstream: Tensor) -> Tensor:
    parts = torch.stack([result.log_prob, result.entropy, result.log_normalizer])
    return (parts * upstream).sum()


def whole() -> dict[str, Tensor]:
    """In one process: values and gradients through the linear head and at its bare logits."""
    given = problem()
    leaves = [given[name].requires_grad_() for name in ("hidden", "weight", "bias")]
    result = el.linear_statistics(*leaves[:2], given["token"], bias=leaves[2], **OPTIONS)
    gradients = torch.autograd.grad(total(result, given["upstream"]), leaves)
    logits = (leaves[0] @ leaves[1].T).detach().requires_grad_()
    counts = given["token"] != -100
    part = el.categorical_statistics(logits, torch.where(counts, given["token"], 0))
    normalizer = logits.logsumexp(-1)
    parts = torch.stack([part.log_prob, part.entropy, normalizer]) * counts
    (at_logits,) = torch.autograd.grad((parts * given["upstream"]).sum(), logits)
    return {
        "values": values(result),
        "logits_values": parts.detach(),
        **dict(zip(("hidden", "weight", "bias"), gradients, strict=True)),
        "logits": at_logits,
    }


def shards(ranks: int) -> list[slice]:
    """Consecutive parts of different sizes; with four ranks one has a single token."""
    bounds = {2: [0, 8, V], 4: [0, 1, 6, 9, V]}[ranks]
    return [slice(a, b) for a, b in pairwise(bounds)]


def measure(ranks: int, rank: int, group: dist.ProcessGroup | None) -> dict[str, Any]:
    """Everything that one rank of ``group`` finds, from its part."""
    given, part = problem(), shards(ranks)[rank]
    hidden = given["hidden"].requires_grad_()
    weight = given["weight"][part].clone().requires_grad_()
    bias = given["bias"][part].clone().requires_grad_()
    result = vocab_parallel_linear_statistics(
        hidden, weight, given["token"], bias=bias, group=group, **OPTIONS
    )
    loss = total(result, given["upstream"])
    gradients = torch.autograd.grad(loss, (hidden, weight, bias), create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradients[0].sum().backward()
    logits = (given["hidden"] @ given["weight"].T)[:, part].detach().requires_grad_()
    over_logits = vocab_parallel_statistics(logits, given["token"], group=group)
    (at_logits,) = torch.autograd.grad(total(over_logits, given["upstream"]), logits)
    with pytest.raises(InvalidValueError, match="the shards of all ranks together have V = 13"):
        vocab_parallel_statistics(logits, given["token"] + V, group=group)
    return {
        "values": values(result),
        "logits_values": values(over_logits),
        "gradients": [gradient.detach() for gradient in gradients],
        "logits": at_logits,
    }


def values(result: el.LinearStatistics) -> Tensor:
    return torch.stack([result.log_prob, result.entropy, result.log_normalizer]).detach()


def rank_program(rank: int, port: int, folder: str) -> None:
    """One of four processes; the first two also share a vocabulary between them alone."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=4)
    pair = dist.new_group([0, 1])
    found = {4: measure(4, rank, None), "dtensor": dtensor_gradient(4, problem())}
    if rank < 2:
        found[2] = measure(2, rank, pair)
    torch.save(found, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def dtensor_gradient(ranks: int, given: dict[str, Tensor]) -> Tensor:
    """The gradient of a sharded unembedding, put together again."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (ranks,))
    weight = distribute_tensor(given["weight"].detach(), mesh, [Shard(0)]).requires_grad_()
    hidden = given["hidden"].detach()
    result = vocab_parallel_linear_statistics(hidden, weight, given["token"])
    total(result, given["upstream"]).backward()
    assert weight.grad is not None
    replicated = weight.detach().redistribute(mesh, [Replicate()])
    with pytest.raises(InvalidTypeError, match=r"expected Shard\(0\) alone, on a mesh of one axis"):
        vocab_parallel_linear_statistics(hidden, replicated, given["token"])
    return weight.grad.full_tensor()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def test_two_and_four_shards_equal_the_whole_forward_and_backward(tmp_path: Path) -> None:
    mp.spawn(rank_program, (free_port(), str(tmp_path)), nprocs=4)
    results = [torch.load(tmp_path / f"{rank}.pt") for rank in range(4)]
    wanted, given = whole(), problem()
    for ranks in (2, 4):
        for part, result in zip(shards(ranks), results, strict=False):
            found = result[ranks]
            hidden, weight, bias = found["gradients"]
            pairs = [
                (found["values"], wanted["values"]),
                (found["logits_values"], wanted["logits_values"]),
                (hidden, wanted["hidden"]),
                (weight, wanted["weight"][part]),
                (bias, wanted["bias"][part]),
                (found["logits"], wanted["logits"][:, part]),
            ]
            for a, b in pairs:
                torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-13)
    weight = given["weight"].requires_grad_()
    plain = el.linear_statistics(given["hidden"], weight, given["token"])
    total(plain, given["upstream"]).backward()
    for result in results:
        torch.testing.assert_close(result["dtensor"], weight.grad, rtol=1e-12, atol=1e-13)


def test_without_processes_it_says_what_to_do() -> None:
    with pytest.raises(InvalidValueError) as caught:
        vocab_parallel_statistics(torch.zeros(1, 2), torch.tensor([0]))
    assert str(caught.value) == (
        "`group`: got no process group, expected one, with a rank for each part of the vocabulary; "
        "call torch.distributed.init_process_group first, or start with torchrun"
    )
