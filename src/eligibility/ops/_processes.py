"""Tensors that several processes share: who they are, this one's part, and what must agree.

A vocabulary is shared where the caller says so, by a group of processes or a dimension of a device
mesh. A ``DTensor`` without a group is gathered: FSDP shards every weight, whatever its axes mean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from eligibility.errors import InvalidTypeError, InvalidValueError
from eligibility.shapes import are_values_readable, is_dtensor

if TYPE_CHECKING or dist.is_available():
    from torch.distributed import ProcessGroup as ProcessGroup
    from torch.distributed.device_mesh import DeviceMesh as DeviceMesh
else:
    ProcessGroup = DeviceMesh = Any

Group = ProcessGroup | DeviceMesh  # those that share a vocabulary; of a mesh, one dimension

_SAMPLES = 32  # of the hidden states, which the processes compare


def process_group(group: object, weight: object = None) -> ProcessGroup:
    """The processes that share a vocabulary: those named, those of ``weight``, or all."""
    if not (dist.is_available() and dist.is_initialized()):
        raise InvalidValueError(
            "`group`",
            "no process group",
            "one, with a rank for each part of the vocabulary",
            "call torch.distributed.init_process_group first, or start with torchrun",
        )
    if group is None and is_dtensor(weight):
        group = weight.device_mesh  # type: ignore[attr-defined]  # a DTensor
    if group is None:
        group = dist.group.WORLD
    if isinstance(group, DeviceMesh):
        if group.ndim != 1:
            raise InvalidTypeError(
                "`group`",
                f"a device mesh of {group.ndim} dimensions",
                "the one that shares the vocabulary",
                "pass it alone, for instance group=mesh['tp']",
            )
        group = group.get_group()
    if not isinstance(group, ProcessGroup):
        raise InvalidTypeError(
            "`group`",
            f"an object of type {type(group).__name__}",
            "a process group, or a dimension of a device mesh, with this process in it",
            "pass what torch.distributed.new_group returns, or mesh['tp']",
        )
    return group


def local_part(tensor: Tensor, axis: int, name: str, group: ProcessGroup) -> Tensor:
    """This process's part of a vocabulary that ``group`` shares: of a DTensor, or what was given.

    What a DTensor shares with processes beyond the group, as under FSDP, is gathered.
    """
    if not is_dtensor(tensor):
        return tensor
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

    assert isinstance(tensor, DTensor)  # for the type checker
    axis %= tensor.ndim
    mesh, ranks = tensor.device_mesh, dist.get_process_group_ranks(group)
    over = [
        dim
        for dim, placement in enumerate(tensor.placements)
        if placement == Shard(axis) and dist.get_process_group_ranks(mesh.get_group(dim)) == ranks
    ]
    if len(over) != 1:
        raise InvalidTypeError(
            f"`{name}`",
            f"a DTensor with placements {tensor.placements}",
            f"Shard({axis}) over the processes of the group",
            "pass the mesh dimension that shares the vocabulary as group=; without a group a "
            "weight is gathered, as FSDP does",
        )
    placed = [Shard(axis) if dim in over else Replicate() for dim in range(mesh.ndim)]
    back = [Shard(axis) if dim in over else Partial("avg") for dim in range(mesh.ndim)]
    return tensor.redistribute(placements=placed).to_local(grad_placements=back)


def gathered(tensor: Tensor) -> Tensor:
    """All of a DTensor, as FSDP gathers it; anything else as it is.

    The gradients that the processes find, each from its own part of a batch, are averaged, as under
    FSDP and DistributedDataParallel.
    """
    if not is_dtensor(tensor):
        return tensor
    from torch.distributed.tensor import DTensor, Partial, Replicate

    assert isinstance(tensor, DTensor)  # for the type checker
    everywhere = [Replicate()] * tensor.device_mesh.ndim
    averaged = [Partial("avg")] * tensor.device_mesh.ndim
    return tensor.redistribute(placements=everywhere).to_local(grad_placements=averaged)


def fingerprint(size: int, token: Tensor, hidden: Tensor | None) -> Tensor:
    """What a process tells the others: its ``size``, and what must be the same everywhere."""
    numbers = torch.zeros(3 + _SAMPLES, dtype=torch.int64, device=token.device)
    numbers[0], numbers[1] = size, token.numel()
    if not are_values_readable(token, *(() if hidden is None else (hidden,))):
        return numbers
    flat = token.detach().reshape(-1).long()
    place = torch.arange(flat.numel(), device=flat.device) % 8191 + 1
    numbers[2] = (flat * place).sum()
    if hidden is not None and hidden.numel():
        last = hidden.numel() - 1
        at = torch.arange(_SAMPLES, device=hidden.device) * last // (_SAMPLES - 1)
        sample = hidden.detach().reshape(-1)[at]
        numbers[3:] = sample.double().view(torch.int64)
    return numbers


def check_agreement(table: Tensor, hidden: Tensor | None) -> None:
    """Raise unless all processes have the same tokens and, to rounding, the same hidden states."""
    # A sample of the hidden states tells one batch from another, and a sum from its parts.
    rows, tokens, samples = table[:, 1], table[:, 2], table[:, 3:].view(torch.float64)
    differing = {"token": (rows != rows[0]) | (tokens != tokens[0])}
    if hidden is not None:
        distance = (samples - samples[0]).masked_fill(samples.isnan() & samples[0].isnan(), 0.0)
        tolerance = torch.finfo(hidden.dtype).eps ** 0.5 * samples[0].nan_to_num().abs().amax()
        differing["hidden"] = ~(distance.abs().amax(1) <= tolerance)
    for name, found in differing.items():
        if bool(found.any()):
            raise InvalidValueError(
                f"`{name}`",
                f"different values in process {int(found.nonzero()[0])} and in process 0 of the "
                "group",
                "equal values in all processes that share a vocabulary",
                "omit group where each process has its own batch, as under DDP and FSDP; "
                "under tensor parallelism gather or sum the hidden states first",
            )
