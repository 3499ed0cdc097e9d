"""What earlier batches paid in each of finitely many states, as a baseline."""

from __future__ import annotations

import torch
from torch import Tensor

from eligibility.reinforce.baseline import Baseline, check_observations, check_returns
from eligibility.scalars import check_count, check_numbers


class StateTable(Baseline):
    r"""The mean return of earlier batches in the same state, ``V(s) = (S_s + V̄)/(n_s + 1)``.

    n_s counts the visits of s, S_s adds up their returns, and both shrink by ``1 − ρ`` before a
    batch is added. V̄, the mean over all states, counts as one more visit, so it is the value of a
    state that was never visited. The present batch is compared with earlier ones and only then
    added: unbiased. The first batch is compared with 0.

    Args:
        states: The number of states. An observation is one number, the state's, in [0, states).
        rate: ρ in (0, 1], the share of the past that each batch makes the table forget.

    Example:
        >>> baseline = StateTable(3)
        >>> baseline(torch.tensor([2.0, 6.0]), observations=torch.tensor([[0], [1]]))
        tensor([0., 0.])
        >>> baseline.predict(torch.tensor([[0], [1], [2]])).tolist()  # V̄ is 4
        [3.0, 5.0, 4.0]

    References:
        Williams 1992, §4, lets a baseline depend on the input.
    """

    _remembers = ("sums", "counts")

    def __init__(self, states: int, rate: float = 0.1) -> None:
        check_count(states, "states")
        check_numbers(rate=rate)
        self.rate = rate
        self.sums, self.counts = torch.zeros(2, states, dtype=torch.float64)

    def __call__(
        self, returns: Tensor, alive: Tensor | None = None, observations: Tensor | None = None
    ) -> Tensor:
        """The value from earlier batches; see `Baseline.__call__`."""
        alive = check_returns(returns, alive)
        observations = check_observations(returns, observations)
        observations = torch.where(alive.unsqueeze(-1), observations, 0)  # the rest may be anything
        baseline = self.predict(observations).to(returns.dtype)
        visited, paid = observations[alive].squeeze(-1), returns[alive].double()
        kept = 1 - self.rate
        self.sums = (kept * self.sums).index_add(0, visited, paid)
        self.counts = (kept * self.counts).index_add(0, visited, torch.ones_like(paid))
        return torch.where(alive, baseline, 0)

    def predict(self, observations: Tensor, time: Tensor | None = None) -> Tensor:
        """V(s) of states ``[*batch, 1]``, at any time: float64 ``[*batch]``."""
        mean = self.sums.sum() / self.counts.sum().clamp(min=1)
        values: Tensor = (self.sums + mean) / (self.counts + 1)
        return values[observations.squeeze(-1)]
