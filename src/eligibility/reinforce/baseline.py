"""What every baseline is, and what it is given."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from eligibility.arguments import check_given, check_tensors
from eligibility.errors import ShapeError
from eligibility.shapes import check_shape


class Baseline(ABC):
    """The interface: returns in, what to subtract out. Stateful ones learn from earlier calls."""

    _remembers: tuple[str, ...] = ()

    @abstractmethod
    def __call__(
        self,
        returns: Float[Tensor, "*T B"],
        alive: Bool[Tensor, "*T B"] | None = None,
        observations: Float[Tensor, "*T B D"] | None = None,
    ) -> Float[Tensor, "*T B"]:
        """The baseline of each return.

        Args:
            returns: Shape ``[T, B]``: B independent episodes, time first; or ``[B]``: one return
                an episode.
            alive: False where an episode is already over and its return means nothing; shape of
                ``returns``. None: everywhere True.
            observations: What was seen before each action, as D numbers; only `StateValue` and
                `StateTable` look.

        Returns:
            What to subtract, shape of ``returns``; 0 where not alive.
        """

    def state_dict(self) -> dict[str, Tensor]:
        """What it remembers between calls."""
        return {name: getattr(self, name) for name in self._remembers}

    def learned_state(self, features: int) -> dict[str, Tensor]:
        """Zeros in the shapes that `state_dict` has once returns were seen.

        Args:
            features: D, how many numbers an observation has.
        """
        return {name: torch.zeros_like(tensor) for name, tensor in self.state_dict().items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Continue from a `state_dict`."""
        for name in self._remembers:
            setattr(self, name, state[name])


def check_returns(returns: Tensor, alive: Tensor | None) -> Tensor:
    """Which of ``returns`` are there; refuse what fits no baseline."""
    check_given(returns, "returns", "pass a return for each step of each episode")
    check_tensors(returns, "returns", returns=returns, alive=alive)
    if alive is None:
        return torch.ones_like(returns, dtype=torch.bool)
    check_shape(alive, returns.shape, "alive", "the shape of returns")
    return alive


def check_observations(returns: Tensor, observations: Tensor | None) -> Tensor:
    """What was seen before each action; refuse what is missing, or is not one for each return."""
    check_tensors(returns, "returns", observations=observations)
    if observations is None or observations.shape[:-1] != returns.shape:
        raise ShapeError(
            "`observations`",
            "None" if observations is None else f"shape {list(observations.shape)}",
            f"[{', '.join(map(str, returns.shape))}, D]",
            "pass the observation before each action, as numbers",
        )
    return observations
