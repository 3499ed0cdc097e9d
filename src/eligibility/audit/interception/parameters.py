"""The tensors that a program trains, looked at along a few directions each."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain

import numpy as np
import torch
from torch.autograd import grad as differentiated  # before it is patched

from eligibility.audit.job import Job, mixture_of

_APART = 0.5  # how far the numbers of a tensor are moved apart
_PERTURBATION = 0.05  # how far a perturbation moves a tensor, per square root of its size


@lru_cache(maxsize=16)  # the tensors of one program; large ones must not pile up
def probing_directions(shape: tuple[int, ...], tensor: int, count: int) -> torch.Tensor:
    """[count, numel] unit vectors, the same in every run, each of a part of the tensor's rows.

    One layer may give an actor's logits and a critic's value: then they are in different rows.
    """
    generator = np.random.Generator(np.random.PCG64(7919 * (tensor + 1)))
    numel = int(np.prod(shape)) if len(shape) else 1
    drawn = generator.standard_normal((count, numel))
    rows = shape[0] if len(shape) else 1
    parts = max(min(count, rows), 1)
    row = np.arange(numel) * rows // max(numel, 1)
    drawn *= (row % parts)[None, :] == (np.arange(count) % parts)[:, None]
    return torch.from_numpy(drawn / np.linalg.norm(drawn, axis=1, keepdims=True))


class Parameters:
    """What the optimizers of one run train, in the order in which it was seen."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self.tensors: list[torch.Tensor] = []
        self.of_modules: list[torch.Tensor] = []  # trained or not, in the order of their making
        self._copies: list[tuple[int, torch.Tensor]] = []  # and where in memory it was copied from
        self._moved: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []  # how, and to where

    def copied(self, source: torch.Tensor, made: torch.Tensor) -> None:
        """A tensor was copied: the copy may act for the one that is trained."""
        if source.shape == made.shape and source.is_floating_point():
            self._copies.append((source.data_ptr(), made))

    def add(self, parameters: Sequence[torch.Tensor]) -> Iterator[torch.Tensor]:
        """Those that are new; the one that the job wants moved is moved."""
        for parameter in parameters:
            if not parameter.requires_grad or any(known is parameter for known in self.tensors):
                continue
            index = len(self.tensors)
            self.tensors.append(parameter)
            yield parameter
            if self._job.problem and bool((parameter == parameter.reshape(-1)[0]).all()):
                # a bandit's arms begin alike, and at equal probabilities much is right by luck
                away = probing_directions(parameter.shape, index, 1)[0] * parameter.numel() ** 0.5
                self._move_with_twins(parameter, _APART * away)
            move = None if self._job.moved_after else self._move_of(index)
            if move is not None:
                self._moved.append((parameter, move, self._move_with_twins(parameter, move)))

    def _move_of(self, tensor: int) -> torch.Tensor | None:
        """How the job wants a tensor to be moved; None: not at all."""
        job, directions = self._job, self._job.directions
        if job.everywhere:
            numbers = range(tensor * directions, (tensor + 1) * directions)
            mixture = torch.from_numpy(mixture_of(numbers))
        elif tensor in (job.tensor, *job.also):
            mixture = torch.eye(directions, dtype=torch.float64)[job.direction]
        else:
            return None
        along = probing_directions(self.tensors[tensor].shape, tensor, directions)
        return job.distance * (mixture @ along)

    def move_late(self) -> None:
        """Move those that the job wants moved after some optimizer steps."""
        for index, tensor in enumerate(self.tensors):
            move = self._move_of(index)
            if move is not None:
                _move(tensor, move)

    def move_again(self) -> None:
        """Before the first step: what a program has overwritten since, as with a checkpoint."""
        for number, (parameter, move, there) in enumerate(self._moved):
            if not torch.equal(parameter, there):
                self._moved[number] = parameter, move, self._move_with_twins(parameter, move)

    def _move_with_twins(self, parameter: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
        """Where the parameter is now."""
        for tensor in (*self._twins(parameter), parameter):
            _move(tensor, by)
        return parameter.detach().clone()

    def _twins(self, parameter: torch.Tensor) -> list[torch.Tensor]:
        """Copies of a parameter that no optimizer trains, and that still are the same."""
        return [
            made
            for source, made in self._copies
            if source == parameter.data_ptr()
            and not any(known is made for known in self.tensors)
            and torch.equal(made, parameter)
        ]

    def perturb(self, owned: Collection[int]) -> None:
        """Move those with an identity in ``owned`` a little."""
        for index, tensor in enumerate(self.tensors):
            if id(tensor) not in owned:
                continue
            along = probing_directions(tensor.shape, index, 1)[0]
            _move(tensor, _PERTURBATION * tensor.numel() ** 0.5 * along)

    def gradients(self, owned: Collection[int]) -> dict[int, torch.Tensor]:
        """By number: the gradients of those with an identity in ``owned``."""
        return {
            index: tensor.grad
            for index, tensor in enumerate(self.tensors)
            if id(tensor) in owned and tensor.grad is not None
        }

    def ascent(
        self, gradients: Mapping[int, torch.Tensor], sign: float
    ) -> tuple[tuple[float, ...] | None, ...]:
        """``sign`` times the gradient of each tensor along its directions; None without one."""
        return tuple(
            tuple(sign * number for number in self._along(index, gradients[index].detach()))
            if index in gradients
            else None
            for index in range(len(self.tensors))
        )

    def slopes(self, outputs: torch.Tensor) -> tuple[tuple[float, ...], ...]:
        """The slopes of each number of ``outputs`` along all directions of all tensors."""
        twins = [[t for t in self._twins(one) if t.requires_grad] for one in self.tensors]
        leaves = [*self.tensors, *chain.from_iterable(twins)]
        owner = [*range(len(twins)), *(i for i, own in enumerate(twins) for _ in own)]
        rows = []
        for output in outputs:
            gradients = differentiated(output, leaves, retain_graph=True, allow_unused=True)
            along = np.zeros((len(twins), self._job.directions))
            for tensor, gradient in zip(owner, gradients, strict=True):
                along[tensor] += self._along(tensor, gradient)
            rows.append(tuple(along.ravel().tolist()))
        return tuple(rows)

    def _along(self, tensor: int, gradient: torch.Tensor | None) -> list[float]:
        """A gradient along the directions of its tensor."""
        if gradient is None:
            return [0.0] * self._job.directions
        along = probing_directions(self.tensors[tensor].shape, tensor, self._job.directions)
        numbers: list[float] = (along @ gradient.to(torch.float64).reshape(-1)).tolist()
        return numbers


def _move(tensor: torch.Tensor, by: torch.Tensor) -> None:
    with torch.no_grad():
        tensor.add_(by.view(tensor.shape).to(tensor))
