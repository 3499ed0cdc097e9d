"""An action as a row of numbers: which are indices, which continuous, and where they start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from eligibility.audit.arrays import Array, Booleans
from eligibility.audit.noise.numpy_numbers import settled
from eligibility.spaces import Kind, kind_of, leaves_of, parts_of, put_together


@dataclass(frozen=True)
class ActionNumbers:
    """What the numbers of an action mean, those of a composite's parts one after the other.

    Attributes:
        space: The action space.
        sizes: Number of values that each number can take; 0 if it is continuous.
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
    kinds = [_kind(leaf) for leaf in leaves_of(space)]
    first = [np.broadcast_to(np.ravel(kind.first), len(kind.sizes)) for kind in kinds]
    # of numbers with a fixed sum the first one decides
    deciding = [
        (place == 0 or not kind.have_fixed_sum) and size > 0
        for kind in kinds
        for place, size in enumerate(kind.sizes)
    ]
    return ActionNumbers(
        space,
        tuple(size for kind in kinds for size in kind.sizes),
        np.concatenate(first).astype(float),
        np.array(deciding),
        sum(kind.draws for kind in kinds),
    )


def masks_of(space: spaces.Space[Any], state: int) -> Any:
    """Which actions are allowed in ``state``, as an environment's ``action_mask`` says it.

    Of three and more values of an index one is forbidden; of two, one in a single state, so that
    the other states leave a choice.
    """
    parts = parts_of(space)
    if parts:
        return put_together(space, {key: masks_of(part, state) for key, part in parts.items()})
    return _kind(space).mask(lambda values: _allowed(values, state))


_LATE = 2  # a state in which two values are reduced to one


def _allowed(values: int, state: int) -> Any:
    allowed = np.ones(values, dtype=np.int8)
    if values > 2 or state == _LATE:
        allowed[(state + 1) % values] = 0
    return allowed


def _numbers(space: spaces.Space[Any], action: Any) -> Array:
    known: Any = parts_of(space)
    if isinstance(action, dict | tuple):
        parts = action if isinstance(action, dict) else dict(enumerate(action))
        keys = known if known and isinstance(action, dict) else parts
        return np.concatenate([_numbers(known.get(key, space), parts[key]) for key in keys])
    plain = settled(action)
    plain = plain.detach().cpu().numpy() if hasattr(plain, "detach") else plain
    return np.asarray(plain, dtype=np.float64).reshape(-1)


def _kind(space: spaces.Space[Any]) -> Kind:
    kind = kind_of(space)
    if kind is None:
        raise NotImplementedError(f"actions of {type(space).__name__}")
    return kind
