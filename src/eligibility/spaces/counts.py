"""``Counts``, which Gymnasium does not have: how n units are shared out over K bins."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector.utils import batch_space

from eligibility.errors import InvalidTypeError, InvalidValueError
from eligibility.spaces.kinds import Alternatives, kind_of


class Counts(gymnasium.Space[np.ndarray[Any, Any]]):
    r"""All ways to put n units into K bins: whole numbers ``[K]``, at least 0, that sum to n.

    The policy for it draws from a multinomial: `eligibility.train.policies.MultinomialPolicy`.
    Neither ``MultiDiscrete`` nor ``Box`` knows that the numbers sum to n. In a vector environment
    the actions are an array ``[environments, K]``.

    Args:
        total: n >= 1.
        bins: K >= 2.
        seed: Of `sample`.

    Raises:
        InvalidTypeError, InvalidValueError: Not such whole numbers.

    Example:
        >>> space = Counts(5, 3)
        >>> np.array([4, 0, 1]) in space, np.array([4, 0, 0]) in space
        (True, False)
    """

    def __init__(
        self, total: int, bins: int, seed: int | np.random.Generator | None = None
    ) -> None:
        for name, value, smallest in (("total", total, 1), ("bins", bins, 2)):
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
                raise InvalidTypeError(
                    f"`{name}`", repr(value), f"a whole number >= {smallest}", "pass an int"
                )
            if value < smallest:
                raise InvalidValueError(
                    f"`{name}`", str(value), f"a whole number >= {smallest}", "choose a larger one"
                )
        self.total, self.bins = int(total), int(bins)
        super().__init__((self.bins,), np.int64, seed)

    @property
    def is_np_flattenable(self) -> bool:
        """Its members are flat arrays already."""
        return True

    def sample(self, mask: Any | None = None, probability: Any | None = None) -> Any:
        """Each unit in a bin drawn uniformly.

        Args:
            mask: 1 for the bins that may be used, ``[K]``; None: all.
            probability: Probability of each bin, ``[K]``, instead of uniform ones.
        """
        if probability is None:
            allowed = np.ones(self.bins) if mask is None else np.asarray(mask, float)
            probability = allowed / allowed.sum()
        return self.np_random.multinomial(self.total, probability)

    def contains(self, x: Any) -> bool:
        """Whether ``x`` is an array of whole numbers of this space."""
        return (
            isinstance(x, np.ndarray)
            and x.dtype.kind in "iu"
            and x.shape == self.shape
            and bool((x >= 0).all())
            and int(x.sum()) == self.total
        )

    def to_jsonable(self, sample_n: Any) -> list[list[int]]:
        return np.asarray(sample_n).tolist()  # type: ignore[no-any-return]  # numpy's tolist gives Any

    def from_jsonable(self, sample_n: Any) -> list[Any]:
        return list(np.asarray(sample_n, np.int64))

    def __repr__(self) -> str:
        return f"Counts({self.total}, {self.bins})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Counts) and repr(self) == repr(other)

    __hash__ = None  # type: ignore[assignment]  # as Gymnasium's spaces


@batch_space.register(Counts)
def _batch(space: Counts, n: int = 1) -> gymnasium.spaces.Box:
    """The actions of several environments, as the rows of an array."""
    return gymnasium.spaces.Box(0, space.total, (n, space.bins), np.int64)


class Units(Alternatives):
    """How ``total`` units are shared out over ``bins``."""

    have_fixed_sum = True
    meaning = "give one number a bin, 0 for those that must stay empty"

    def __init__(self, total: int, bins: int) -> None:
        self.total, self.bins, self.alternatives = total, bins, bins
        self.sizes = (total + 1,) * bins

    @property
    def draws(self) -> int:
        return self.total

    def member(self, number: int) -> Any:
        """All units in each bin in turn."""
        return self.total * np.eye(self.bins, dtype=np.int64)[number % self.bins]


@kind_of.register
def _(space: Counts) -> Units:
    return Units(space.total, space.bins)
