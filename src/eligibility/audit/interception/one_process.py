"""What a program finds that is started once for each device and runs once here: itself alone.

No group of processes is formed, since its threads would not outlive a fork. What one process sends
to all of them stays as it is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from eligibility.audit.patches import Patches

_AS_IT_IS = ("all_reduce", "broadcast", "reduce", "broadcast_object_list", "barrier")


class _Done:
    """Work that was asked for asynchronously."""

    def wait(self, *args: Any, **options: Any) -> bool:
        return True


def run_alone(patches: Patches) -> None:
    """A group of processes whose number a launcher would have said consists of this one."""
    if not dist.is_available():  # in a build without it
        return
    formed: list[str] = []

    def either(owner: Any, name: str, alone: Callable[..., Any]) -> None:
        """What a function does in such a group; in another one, or in none, it is its own."""

        def called(*args: Any, **options: Any) -> Any:
            return (alone if formed else stock)(*args, **options)

        stock = patches.set(owner, name, called)

    def form(backend: Any = None, *args: Any, **options: Any) -> Any:
        told = args or {"store", "world_size", "rank"} & set(options)
        if told and options.get("world_size") != 1:
            return stock_form(backend, *args, **options)
        formed.append(str(backend or "gloo"))
        return None

    stock_form = patches.set(dist, "init_process_group", form)
    patches.callback(formed.clear)
    for name in _AS_IT_IS:
        either(dist, name, _leave)
    for name in ("all_gather", "all_gather_into_tensor"):
        either(dist, name, _gather)
    either(dist, "all_gather_object", _gather_object)
    either(dist, "is_initialized", lambda: True)
    either(dist, "get_backend", lambda *args: formed[-1])
    either(dist, "get_rank", lambda *args, **options: 0)
    either(dist, "get_world_size", lambda *args, **options: 1)
    either(dist, "destroy_process_group", lambda *args, **options: formed.clear())
    either(DistributedDataParallel, "__init__", _hold)
    either(
        DistributedDataParallel, "forward", lambda self, *a, **options: self.module(*a, **options)
    )
    either(DistributedDataParallel, "no_sync", lambda self: contextlib.nullcontext())


def _leave(*args: Any, async_op: bool = False, **options: Any) -> _Done | None:
    return _Done() if async_op else None


def _gather(into: Any, given: Any, *args: Any, async_op: bool = False, **options: Any) -> Any:
    (into[0] if isinstance(into, list) else into).copy_(given)
    return _Done() if async_op else None


def _gather_object(into: list[Any], given: Any, *args: Any, **options: Any) -> None:
    into[0] = given


def _hold(self: Any, module: torch.nn.Module, *args: Any, **options: Any) -> None:
    """One process has no gradients to average."""
    torch.nn.Module.__init__(self)
    self.module = module
