"""What earlier batches predict for a state, or paid in it, as baselines."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor

from eligibility.reinforce.baseline import Baseline, check_observations, check_returns
from eligibility.scalars import check_count, check_flag, check_numbers


class StateValue(Baseline):
    r"""The value that earlier batches predict for the state and the time, ``V(s, t) = w·φ(s, t)``.

    w is the ridge regression of the last batch's returns, solved exactly, with nothing to tune.
    With ``z`` the numbers of (s, t) in standard deviations from their means in that batch, cut off
    at ±5, the features are ``φ = [1, z, z², z³, tanh(W z + b)]``: the tanh are hidden units whose
    weights W and b are drawn once and stay. The present batch is compared with the w of earlier
    ones and only then regressed on, so the baseline knows nothing of the actions it is compared
    with: unbiased. The first batch is compared with 0.

    Args:
        ridge: The penalty on each squared weight, > 0, relative to the sum of squares of its
            feature.
        units: The number of hidden units.
        time: Whether V knows the time. Without it a time limit is not part of the state: what is
            seen late in an episode with a cost at every step counts as better than what is seen
            early, and the policy goes where it has not been before it has met any success.

    Example:
        >>> baseline = StateValue()
        >>> state = torch.tensor([[0.0], [1.0], [2.0]])
        >>> baseline(torch.tensor([1.0, 3.0, 5.0]), observations=state)
        tensor([0., 0., 0.])
        >>> baseline(torch.tensor([9.0, 9.0, 9.0]), observations=state).round(decimals=1)
        tensor([1., 3., 5.])

    References:
        Williams 1992, §4, lets a baseline depend on the input; polynomials are what Duan et al.
        2016 regress on, "Benchmarking deep reinforcement learning for continuous control", hidden
        units that are not trained Rahimi & Recht 2008, "Random features for large-scale kernel
        machines".
    """

    _remembers = ("weights", "mean", "factor")

    def __init__(self, ridge: float = 1e-3, units: int = 128, time: bool = True) -> None:
        check_numbers(ridge=ridge)
        check_count(units, "units", least=0)
        check_flag(time, "time")
        self.ridge, self.units, self.time = ridge, units, time
        self.weights, self.mean, self.factor = torch.zeros(3, 0, dtype=torch.float64)
        self._hidden: tuple[Tensor, Tensor] | None = None

    def __call__(
        self, returns: Tensor, alive: Tensor | None = None, observations: Tensor | None = None
    ) -> Tensor:
        """The value predicted from earlier batches; see `Baseline.__call__`."""
        alive = check_returns(returns, alive)
        observations = check_observations(returns, observations)
        rows = torch.arange(returns.shape[0] if returns.ndim > 1 else 1)
        time = (rows.unsqueeze(-1) if returns.ndim > 1 else rows).expand(returns.shape)
        baseline = self.predict(observations, time).to(returns.dtype)
        self._fit(observations[alive], time[alive], returns[alive])
        return torch.where(alive, baseline, 0)

    def predict(self, observations: Tensor, time: Tensor) -> Tensor:
        """V(s, t) of observations ``[*batch, D]`` at times ``[*batch]``, float64 ``[*batch]``."""
        if not len(self.weights):
            return torch.zeros(time.shape, dtype=torch.float64)
        value: Tensor = self._features(self._numbers(observations, time)) @ self.weights
        return value

    def learned_state(self, features: int) -> dict[str, Tensor]:
        """Zeros for observations of D numbers; see `Baseline.learned_state`."""
        numbers = features + self.time
        sizes = {"weights": 1 + 3 * numbers + self.units, "mean": numbers, "factor": numbers}
        return {name: self.weights.new_zeros(size) for name, size in sizes.items()}

    def _fit(self, observations: Tensor, time: Tensor, returns: Tensor) -> None:
        numbers = self._numbers(observations, time)
        spread = numbers.std(0, correction=0)
        self.mean = numbers.mean(0)
        # What never differs but for rounding says nothing.
        self.factor = torch.where(spread > 1e-6 * self.mean.abs(), 1 / spread, 0)
        features = self._features(numbers)
        gram = features.T @ features
        diagonal = gram.diagonal()
        diagonal.add_(self.ridge * torch.where(diagonal > 0, diagonal, 1))
        self.weights = torch.linalg.solve(gram, features.T @ returns.double())

    def _numbers(self, observations: Tensor, time: Tensor) -> Tensor:
        """``[s, t]``, float64 ``[*batch, D + 1]``, or s alone."""
        seen = [observations.double(), *[time.double().unsqueeze(-1)] * self.time]
        return torch.cat(seen, -1)

    def _features(self, numbers: Tensor) -> Tensor:
        """φ of n numbers, float64 ``[*batch, 3 n + 1 + units]``."""
        z = ((numbers - self.mean) * self.factor).clamp_(-5, 5)
        if self._hidden is None:
            # Narrow enough to be smooth over a standard deviation, wide enough to bend in it.
            scale = 1.5 / z.shape[-1] ** 0.5
            self._hidden = (drawn := _drawn(z.shape[-1] + 1, self.units))[1:] * scale, drawn[0]
        weights, bias = self._hidden
        hidden = torch.tanh(z @ weights + bias)
        return torch.cat([torch.ones_like(z[..., :1]), z, z**2, z**3, hidden], -1)


@cache
def _drawn(rows: int, columns: int) -> Tensor:
    """Normal numbers, always the same: a part of what the baseline is, not of what a run draws."""
    generator = np.random.Generator(np.random.PCG64(0))
    return torch.from_numpy(generator.standard_normal((rows, columns)))


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
