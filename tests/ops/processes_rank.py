"""The scripts of the how-to page on several processes, each run in one of two of them."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

import eligibility as el
from eligibility.errors import InvalidTypeError, InvalidValueError

PAGE = Path(__file__).parents[2] / "docs" / "how_to" / "several_processes.md"
SCRIPT = re.compile(r'^```py title="(?P<name>\w+)\.py"\n(?P<body>.*?)^```$', re.M | re.S)


def scripts() -> dict[str, str]:
    """Name -> text of the scripts of the page."""
    return {match["name"]: match["body"] for match in SCRIPT.finditer(PAGE.read_text("utf-8"))}


def run(name: str) -> dict[str, Any]:
    """What a script of the page leaves behind."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(scripts()[name], f"{name}.py", "exec"), namespace)
    return namespace


def whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def gradients(model: nn.Module) -> dict[str, Tensor]:
    found = {name: part.grad for name, part in model.named_parameters()}
    assert all(gradient is not None for gradient in found.values())
    return {
        name.removeprefix("module."): whole(gradient)
        for name, gradient in found.items()
        if gradient is not None
    }


def message(call: Callable[[], Any], kind: type[Exception]) -> str:
    with pytest.raises(kind) as caught:
        call()
    return str(caught.value)


def refusals(rank: int) -> dict[str, str]:
    """What is said to those who take one kind of sharing for another."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    plane = init_device_mesh("cpu", (1, 2), mesh_dim_names=("dp", "tp"))
    hidden, weight, token = torch.ones(4, 3), torch.ones(6, 3), torch.arange(4)
    advantage, own = torch.ones(4), torch.arange(4) + rank
    half, others = weight[:3], torch.full((4, 3), 1.0 + rank)
    replicated = distribute_tensor(weight, mesh, [Replicate()])
    logits = distribute_tensor(torch.ones(4, 6), mesh, [Shard(0)])

    def loss(hidden: Any, weight: Any, token: Any, group: Any) -> Tensor:
        return el.linear_reinforce_loss(hidden, weight, token, advantage, group=group)

    return {
        "tokens": message(lambda: loss(hidden, half, own, mesh), InvalidValueError),
        "hidden": message(lambda: loss(others, half, token, mesh), InvalidValueError),
        "rows": message(
            lambda: el.linear_log_prob(
                torch.ones(4 + rank, 3), half, torch.zeros(4 + rank).long(), group=mesh
            ),
            InvalidValueError,
        ),
        "mesh": message(lambda: loss(hidden, half, token, plane), InvalidTypeError),
        "group": message(lambda: loss(hidden, half, token, "tp"), InvalidTypeError),
        "replicated": message(lambda: loss(hidden, replicated, token, mesh), InvalidTypeError),
        "logits": message(lambda: el.reinforce_loss(logits, token, advantage), InvalidTypeError),
    }


def two_meshes(rank: int) -> dict[str, Tensor]:
    """The gradient of a weight that is sharded over one dimension of a mesh of two."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    policy = sys.modules["policy"]
    found = {}
    for name, shape, placements in (
        ("replicated", (2, 1), [Replicate(), Shard(0)]),
        ("sharded", (1, 2), [Replicate(), Shard(0)]),
    ):
        mesh = init_device_mesh("cpu", shape)
        torch.manual_seed(0)
        model = policy.Policy()
        weight = distribute_tensor(model.head.weight.detach(), mesh, placements)
        prompt, token, advantage = policy.batch(rank)
        hidden = model.body(prompt).detach()
        el.linear_reinforce_loss(hidden, weight.requires_grad_(), token, advantage).backward()
        assert weight.grad is not None
        found[name] = weight.grad.full_tensor()
    return found


def main(arguments: list[str]) -> None:
    """One of two processes: each script of the page, and what is refused."""
    (folder,) = arguments
    Path(folder, "policy.py").write_text(scripts()["policy"], encoding="utf-8")
    sys.path.insert(0, folder)
    found: dict[str, Any] = {}
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    with mock.patch.object(dist, "init_process_group"):  # the processes are there already
        for name in scripts():
            if name != "policy":
                left = run(name)
                found[name] = (left["loss"].detach(), gradients(left["model"]))
    found |= {"refusals": refusals(rank), "meshes": two_meshes(rank)}
    torch.save(found, f"{folder}/{rank}.pt")
