"""What shows from one update to the next: used gradients, parameters moved by hand, plain ratios.

PyTorch adds to the gradients that are there. A program that does not set them to zero takes each
step with the sum of all that came before. One that moves its parameters itself needs no optimizer
of torch. A ratio of probabilities that is only a number, as in V-trace, is in no graph of a loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import torch

from eligibility.audit.choices import UpdatedByHandError
from eligibility.audit.trace import BY_HAND, SIDE, Fact

_ROUNDING = 1e-5  # of log-probabilities in single precision


class AccumulatedGradients:
    """Follows the gradients of a run's tensors, each known by its index.

    It is the tensor of numbers that is followed, not whose gradient it is: workers hand theirs to a
    shared network.
    """

    def __init__(self) -> None:
        # Gradients that a step was made with, how often each had been written to, and its norm.
        self._used: dict[int, tuple[torch.Tensor, int, float]] = {}
        self._left: dict[int, float] = {}  # norms of those still there when a backward began

    def before_backward(self) -> None:
        """Gradients that were used, and that nobody has written to since, may be added to."""
        for key, (gradient, version, norm) in self._used.items():
            if not gradient.any():
                self._left.pop(key, None)
            elif gradient._version == version:
                self._left[key] = norm

    def share(self, gradients: Mapping[int, torch.Tensor]) -> float:
        """How much of a step's gradients an earlier step was made with, by norm; they are used."""
        total = again = 0.0
        for key, gradient in gradients.items():
            norm = float(gradient.norm())
            left = self._left.pop(key, None)
            total += norm**2
            if left is not None and norm and gradient is self._used[key][0]:
                again += left**2
            self._used[key] = gradient, gradient._version, norm
        if not again:
            return 0.0
        return float((again / total) ** 0.5) if total else 1.0


class HandUpdates:
    """Follows what each loss is differentiated by, as long as no optimizer has stepped it.

    Args:
        trained: What optimizers train; a copy of one of these was not moved, but refreshed.
    """

    def __init__(self, trained: Sequence[torch.Tensor]) -> None:
        self._trained = trained
        self._stepped: set[int] = set()
        self._before: dict[int, tuple[torch.Tensor, torch.Tensor, tuple[str, int]]] = {}

    def differentiates(self, leaves: Iterable[torch.Tensor], place: tuple[str, int]) -> None:
        """A loss of these leaves is about to be differentiated, on this line."""
        for leaf in leaves:
            if id(leaf) not in self._stepped and id(leaf) not in self._before:
                self._before[id(leaf)] = leaf, leaf.detach().clone(), place

    def stepped(self, parameters: Iterable[torch.Tensor]) -> None:
        """An optimizer steps these."""
        for parameter in parameters:
            self._stepped.add(id(parameter))
            self._before.pop(id(parameter), None)

    def check(self) -> str:
        """A note with the line of its loss if anything else has moved since; else an empty one.

        Raises `UpdatedByHandError` if no optimizer has stepped at all. If one has, it may train the
        policy, and what is moved by hand a critic: then the survey decides.
        """
        for leaf, before, place in self._before.values():
            if not torch.equal(leaf, before) and not self._is_refreshed(leaf):
                if not self._stepped:
                    raise UpdatedByHandError(*place)
                return f"{BY_HAND} {place[0]}:{place[1]}"
        return ""

    def _is_refreshed(self, leaf: torch.Tensor) -> bool:
        return any(
            known is not leaf and known.shape == leaf.shape and torch.equal(known, leaf)
            for known in self._trained
        )


def turned(fact: Fact, update: int) -> Fact:
    """The fact, for an optimizer that climbs: there the other extreme is the right one."""
    return replace(fact, size=-fact.size) if (fact.kind, fact.update) == (SIDE, update) else fact


class DetachedRatios:
    """Sees a ratio by its logarithm, which is 0 where a batch is trained on for the first time.

    Args:
        draws: How many numbers the program has drawn: what follows the last draw of an update is
            its loss.
    """

    def __init__(self, draws: Callable[[], int]) -> None:
        self._draws = draws
        self._draws_before = -1

    def exponentiated(self, exponent: torch.Tensor) -> None:
        """The program takes the exponential of these numbers."""
        if exponent.requires_grad or not exponent.is_floating_point() or not exponent.numel():
            return
        if float(exponent.abs().max()) < _ROUNDING:
            self._draws_before = self._draws()

    def are_used(self) -> bool:
        """Whether there was one since the last draw."""
        return self._draws_before == self._draws()
