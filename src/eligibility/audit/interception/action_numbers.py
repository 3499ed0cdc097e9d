"""An action as a row of numbers: which are indices, which continuous, and where they start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from eligibility.audit.arrays import Array, Booleans
from eligibility.audit.noise.numpy_numbers import settled


@dataclass(frozen=True)
class ActionNumbers:
    """What the numbers of an action mean, those of a composite's parts one after the other.

    Attributes:
        space: The action space.
        sizes: Of each number: how many values it can take; 0 for a continuous one.
        first: [numbers] the lowest index of each.
        deciding: [numbers] those whose parity decides where the probe goes.
        draws: Random numbers that an action takes if each is drawn by one; counts take one a unit.
    """

    space: spaces.Space[Any]
    sizes: tuple[int, ...]
    first: Array
    deciding: Booleans
    draws: int

    @property
    def continuous(self) -> Booleans:
        """[numbers] which are not indices, bits or counts."""
        return np.equal(self.sizes, 0)

    def of(self, action: Any) -> Array:
        """The numbers of ``action``, indices counted from 0; a Box may get fewer than it has."""
        numbers = _numbers(self.space, action)
        if len(numbers) > len(self.first):
            raise ValueError(f"an action of {len(numbers)} numbers for {self.space}")
        first = self.first if len(numbers) == len(self.first) else self.first[:1]
        return numbers - first


def numbers_of(space: spaces.Space[Any]) -> ActionNumbers:
    """What an action of ``space`` consists of."""
    parts = leaves(space)
    first = [np.broadcast_to(getattr(p, "start", 0), (len(_sizes(p)),)).reshape(-1) for p in parts]
    # of counts, whose sum is always the same, the first one decides
    deciding = [
        (place == 0 or not hasattr(part, "total")) and size > 0
        for part in parts
        for place, size in enumerate(_sizes(part))
    ]
    return ActionNumbers(
        space,
        tuple(size for part in parts for size in _sizes(part)),
        np.concatenate(first).astype(float),
        np.array(deciding),
        sum(int(getattr(part, "total", len(_sizes(part)))) for part in parts),
    )


def leaves(space: spaces.Space[Any]) -> list[spaces.Space[Any]]:
    """The spaces that a composite is made of, in the order of their numbers."""
    if isinstance(space, spaces.Dict):
        return [part for inner in space.spaces.values() for part in leaves(inner)]
    if isinstance(space, spaces.Tuple):
        return [part for inner in space.spaces for part in leaves(inner)]
    return [space]


def masks_of(space: spaces.Space[Any], state: int) -> Any:
    """Which actions are allowed in ``state``, as an environment's ``action_mask`` says it.

    Of three and more values of an index one is forbidden; of two, one in a single state, so that
    the other states leave a choice.
    """
    if isinstance(space, spaces.Dict):
        return {key: masks_of(part, state) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(masks_of(part, state) for part in space.spaces)
    if isinstance(space, spaces.Box):
        return None
    if isinstance(space, spaces.MultiBinary):  # 2 leaves a bit free
        bits = np.full(space.shape, 2, dtype=np.int8)
        bits.reshape(-1)[0] = 1 if state == _LATE else 2
        return bits
    if hasattr(space, "total"):  # one number a bin
        return _allowed(int(space.shape[0]), state)  # type: ignore[index]  # it has one axis
    return np.concatenate([_allowed(size, state) for size in _sizes(space)])


_SIMPLE = (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary, spaces.Box)
_LATE = 2  # a state in which two values are reduced to one


def _allowed(values: int, state: int) -> Any:
    allowed = np.ones(values, dtype=np.int8)
    if values > 2 or state == _LATE:
        allowed[(state + 1) % values] = 0
    return allowed


def _numbers(space: spaces.Space[Any], action: Any) -> Array:
    if isinstance(action, dict):
        keys = space.spaces if isinstance(space, spaces.Dict) else action
        parts = [(_part(space, key), action[key]) for key in keys]
    elif isinstance(action, tuple):
        parts = [(_part(space, place), part) for place, part in enumerate(action)]
    else:
        plain = settled(action)
        plain = plain.detach().cpu().numpy() if hasattr(plain, "detach") else plain
        flat: Array = np.asarray(plain, dtype=np.float64).reshape(-1)
        return flat
    return np.concatenate([_numbers(inner, part) for inner, part in parts])


def _part(space: Any, key: Any) -> Any:
    composite = isinstance(space, (spaces.Dict, spaces.Tuple))
    return space.spaces[key] if composite else space


def _sizes(space: spaces.Space[Any]) -> list[int]:
    """How many values each number of a simple action can take; 0: any real number."""
    if not (isinstance(space, _SIMPLE) or hasattr(space, "total")):
        raise NotImplementedError(f"actions of {type(space).__name__}")
    if isinstance(space, spaces.Discrete):
        return [int(space.n)]
    if isinstance(space, spaces.MultiDiscrete):
        return [int(n) for n in space.nvec.reshape(-1)]
    count = int(np.prod(space.shape or (1,)))
    if isinstance(space, spaces.Box):
        return [0] * count
    return [int(getattr(space, "total", 1)) + 1] * count  # units of counts; else bits
