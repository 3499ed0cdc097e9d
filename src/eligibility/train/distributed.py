"""One training on several processes: each plays its share of the environments.

The environments are divided into shards. What happens in a shard depends on the seed, the number
of the rollout and the number of the shard, not on who plays it; credit is computed from the
outcomes of all, and the gradients are added up. So the run is a function of its config alone: one
process, two or four make the same steps, up to the rounding of that sum.

Between processes travel, for each update, 16 bytes a step for the outcomes and 16 bytes a weight
for the gradient and that of half the episodes, which says how noisy it is; observations only where
a baseline, a normalisation or the natural gradient needs those of everybody.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from eligibility.errors import EligibilityError, InvalidValueError
from eligibility.train.rollout import Rollout, padded


@dataclass(frozen=True)
class Processes:
    """The processes that train together, as one of them sees them."""

    rank: int = 0  # the number of this one
    size: int = 1  # how many there are

    def shards(self, number: int) -> range:
        """Which of ``number`` shards this process plays."""
        if number % self.size:
            raise InvalidValueError(
                "`shards`",
                str(number),
                f"a multiple of the {self.size} processes",
                f"pass --shards {self.size}, or start a number of processes that divides {number}",
            )
        share = number // self.size
        return range(self.rank * share, (self.rank + 1) * share)

    def gather(self, rollout: Rollout, *, with_observations: bool) -> Rollout:
        """The rollout of all processes in the order of the shards, but for the actions.

        Observations too are this process's alone unless they are asked for.
        """
        if self.size == 1:
            return rollout
        lengths = self._all(torch.tensor([len(rollout.rewards)]))
        rows = int(torch.cat(lengths).max())
        flags = rollout.alive.double() + 2 * rollout.terminated + 4 * rollout.truncated
        outcomes = torch.stack([rollout.rewards, flags], -1)
        rewards, flags = torch.cat(self._all(padded(outcomes, rows)), 1).unbind(-1)
        bits = flags.long()
        whole = replace(
            rollout,
            rewards=rewards,
            alive=(bits & 1).bool(),
            terminated=(bits & 2).bool(),
            truncated=(bits & 4).bool(),
        )
        if not with_observations:
            return whole
        return replace(
            whole,
            observations=torch.cat(self._all(padded(rollout.observations, rows)), 1),
            final_observations=torch.cat(self._all(rollout.final_observations)),
        )

    def own(self, values: Tensor, alive: Tensor) -> Tensor:
        """The values of this process's steps, of one for each True of the gathered ``alive``."""
        if self.size == 1:
            return values
        spread = torch.zeros(alive.shape, dtype=values.dtype).masked_scatter(alive, values)
        width = alive.shape[1] // self.size
        columns = slice(self.rank * width, (self.rank + 1) * width)
        return spread[:, columns][alive[:, columns]]

    def gather_steps(self, values: Tensor, chosen: Tensor) -> Tensor:
        """What the chosen steps ``[T, B]`` of all processes have; ``values`` are of this one's."""
        if self.size == 1:
            return values[chosen]
        width = chosen.shape[1] // self.size
        players = chosen.nonzero()[:, 1] // width
        numbers = torch.bincount(players, minlength=self.size)
        columns = slice(self.rank * width, (self.rank + 1) * width)
        own = values[chosen[: len(values), columns]]
        gathered = self._all(padded(own, int(numbers.max())))
        found = own.new_empty(len(players), *own.shape[1:])
        for player, (part, number) in enumerate(zip(gathered, numbers.tolist(), strict=True)):
            found[players == player] = part[:number]
        return found

    def add_up(self, tensors: list[Tensor]) -> None:
        """Replace each tensor by its sum over the processes, in one message of float64."""
        if self.size == 1:
            return
        total = torch.cat([tensor.reshape(-1).double() for tensor in tensors])
        with _talking():
            dist.all_reduce(total)
        parts = torch.split(total, [tensor.numel() for tensor in tensors])
        for tensor, part in zip(tensors, parts, strict=True):
            tensor.copy_(part.view_as(tensor))

    def any(self, condition: bool) -> bool:
        """Whether the condition holds in one of the processes."""
        if self.size == 1:
            return condition
        held = torch.tensor([int(condition)])
        with _talking():
            dist.all_reduce(held, op=dist.ReduceOp.MAX)
        return bool(held)

    def _all(self, tensor: Tensor) -> list[Tensor]:
        """The tensors of all processes, which have the same shape, by rank."""
        sent = tensor.contiguous()
        sent = sent.view(torch.uint8) if sent.dtype == torch.bool else sent  # gloo knows no bool
        gathered = [torch.empty_like(sent) for _ in range(self.size)]
        with _talking():
            dist.all_gather(gathered, sent)
        return [received.view(tensor.dtype) for received in gathered]


# One process that trains by itself.
ALONE = Processes()


def current_processes() -> Processes:
    """The group that torchrun started this process in, or that the program made; else itself."""
    if not dist.is_initialized():
        if int(os.environ.get("WORLD_SIZE", "1")) == 1:
            return ALONE
        store, rank, size = next(rendezvous("env://"))
        # After a restart the store still has the addresses of processes that are gone.
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        store = PrefixStore(f"eligibility/{attempt}", store)
        # gloo: environments and small networks live on the CPU.
        dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
        atexit.register(dist.destroy_process_group)
    return Processes(dist.get_rank(), dist.get_world_size())


@contextmanager
def _talking() -> Iterator[None]:
    """What torch raises when another process has gone becomes one error of ours."""
    try:
        yield
    except RuntimeError as error:
        raise EligibilityError(
            "the other processes",
            "no answer, because one of them has exited",
            "all of them to run until training ends",
            "read the first error message; the policy trained so far is kept",
        ) from error
