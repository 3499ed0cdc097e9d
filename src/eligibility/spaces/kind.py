"""What a space holds that is not made of others: some numbers, each an index or continuous."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from functools import singledispatch
from typing import Any

import numpy as np

from eligibility.errors import InvalidTypeError, ShapeError

# What a mask says of an output, apart from 1 for "free": its logit is −∞, or +∞.
NEVER, FREE, ALWAYS = 0, 1, 2

Allow = Callable[[int], np.ndarray[Any, Any]]


class Kind(ABC):
    """The interface. A member of the space is an array of numbers, in their order.

    Attributes:
        sizes: Number of values that each number can take; 0 if it is continuous.
        first: The lowest value of each number that is not continuous, as one array or one number.
        draws: How many random numbers draw a member, if each number is drawn by one.
        have_fixed_sum: Whether the numbers of every member have the same sum.
    """

    sizes: tuple[int, ...]
    first: Any = 0
    have_fixed_sum = False

    @property
    def draws(self) -> int:
        """One a number, unless a kind says otherwise."""
        return len(self.sizes)

    def member(self, number: int) -> Any:
        """Some member of a space that is not continuous, in turn."""
        raise NotImplementedError(f"the members of {type(self).__name__} in turn")

    # A mask of actions is read as one code a value that a choice is made of; where it forbids, the
    # policy's output becomes −∞, and from there on everything else follows: π = 0, e = 0, no share
    # in the entropy.

    def codes(self, masks: Any) -> np.ndarray[Any, Any]:
        """The codes uint8 ``[N, P]`` of N masks, each as the environment gives it."""
        raise InvalidTypeError(
            "the action mask",
            "one for numbers of a Box",
            "none: there is nothing to choose from",
            "omit it, or None for this part of a Dict or Tuple",
        )

    def stuck(self, codes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Where nothing is allowed, bool ``[N]``."""
        return np.zeros(len(codes), bool)

    def mask(self, allow: Allow) -> Any:
        """The mask of one environment; ``allow(K)`` says which of K values it allows, ``[K]``."""
        return None


@singledispatch
def kind_of(space: Any) -> Kind | None:
    """The kind of a space; None where nothing is known of it, or it is made of others."""
    return None


def read_masks(masks: Any, width: int, meaning: str) -> np.ndarray[Any, Any]:
    """N masks of ``width`` numbers as an array ``[N, width]``."""
    try:
        array = np.asarray(masks)
    except ValueError:  # rows of several lengths
        array = np.empty(0, object)
    if array.dtype.kind not in "biuf":
        raise InvalidTypeError(
            "the action mask", f"{array.dtype} values", f"{width} numbers", meaning
        )
    if array.ndim < 2 or array[0].size != width:
        raise ShapeError("the action mask", f"shape {list(array.shape[1:])}", f"[{width}]", meaning)
    return array.reshape(len(array), width)
