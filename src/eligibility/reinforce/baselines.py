"""What is subtracted from a return: less variance, and, if it ignores the own action, no bias.

A baseline is called with the returns of independent episodes, time first and episodes last, and
answers with what to subtract from each: ``advantage = returns − baseline(returns, alive)``. The
rows need not be times: with several answers to each of several prompts, `LeaveOneOut` can be told.

============================  ================================================  ====
baseline of episode i         value                                             bias
============================  ================================================  ====
``NoBaseline``                0                                                 none
``MovingAverage``             exponential average over earlier batches          none
``LeaveOneOut``               mean of the other episodes, over all their steps  none
``LeaveOneOut("groups")``     mean of the others in the same row                none
``TimeDependentLeaveOneOut``  mean of the other episodes at the same time step  none
``StateValue``                what earlier batches predict for the state        none
============================  ================================================  ====

The mean that includes the own episode is not among them: it shrinks the gradient by exactly 1/N.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from eligibility.arguments import check_given, check_tensors
from eligibility.errors import ShapeError
from eligibility.scalars import check_choice, check_count, check_numbers


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
            observations: What was seen before each action, as D numbers; only `StateValue` looks.

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


class NoBaseline(Baseline):
    """Zero: unbiased, and the largest variance. What the others are compared with.

    Example:
        >>> NoBaseline()(torch.tensor([1.0, 3.0]))
        tensor([0., 0.])
    """

    def __call__(
        self, returns: Tensor, alive: Tensor | None = None, observations: Tensor | None = None
    ) -> Tensor:
        """0 everywhere; see `Baseline.__call__`."""
        _check(returns, alive)
        return torch.zeros_like(returns)


class MovingAverage(Baseline):
    r"""Williams' reinforcement comparison, ``r̄ ← ρ r + (1 − ρ) r̄``, over batches.

    The present batch is compared with the average over *earlier* ones, and only then enters it:
    that is what makes it unbiased. The first batch is compared with 0.

    Args:
        rate: ρ in (0, 1], the weight of the newest batch (Williams writes γ).

    Example:
        >>> baseline = MovingAverage(rate=0.5)
        >>> baseline(torch.tensor([4.0, 8.0]))
        tensor([0., 0.])
        >>> baseline(torch.tensor([1.0, 1.0]))
        tensor([3., 3.])

    References:
        Williams 1992, Machine Learning 8:229-256, eq. (9) and (10).
    """

    _remembers = ("average",)

    def __init__(self, rate: float = 0.1) -> None:
        check_numbers(rate=rate)
        self.rate = rate
        self.average = torch.zeros((), dtype=torch.float64)

    def __call__(
        self, returns: Tensor, alive: Tensor | None = None, observations: Tensor | None = None
    ) -> Tensor:
        """The average over earlier batches; see `Baseline.__call__`."""
        alive = _check(returns, alive)
        baseline = torch.where(alive, self.average.to(returns.dtype), 0)
        newest = returns[alive].double().mean()
        self.average = self.rate * newest + (1 - self.rate) * self.average
        return baseline


class LeaveOneOut(Baseline):
    r"""The mean return of the other episodes, ``b_i = Σ_{j≠i} Σ_t G_jt / Σ_{j≠i} T_j``.

    Independent of everything that episode i did, hence unbiased; with returns ``[B]`` it is the
    leave-one-out estimator of the bandit literature. Needs two episodes.

    A matrix has two readings, and both have names. By default its rows are the steps of B episodes,
    ``[T, B]``, and all steps of the other episodes make one mean. With ``rows="groups"`` each row
    is a group by itself, such as the answers to one prompt, ``[prompts, answers]``: an answer is
    compared with the other answers to its own prompt and with nothing else.

    Args:
        rows: What the rows of a matrix of returns are, ``"time"`` or ``"groups"``.

    Raises:
        InvalidValueError: ``rows`` is neither.

    Example:
        >>> LeaveOneOut()(torch.tensor([1.0, 3.0, 5.0]))
        tensor([4., 3., 2.])
        >>> answers = torch.tensor([[1.0, 3.0, 5.0], [0.0, 0.0, 6.0]])  # of two prompts
        >>> LeaveOneOut(rows="groups")(answers)
        tensor([[4., 3., 2.],
                [3., 3., 0.]])

    References:
        Kool, van Hoof & Welling 2019, "Buy 4 REINFORCE samples, get a baseline for free!".
    """

    def __init__(self, rows: str = "time") -> None:
        check_choice(rows, "rows", ("time", "groups"), "say what the rows of the returns are")
        self.rows = rows

    def __call__(
        self, returns: Tensor, alive: Tensor | None = None, observations: Tensor | None = None
    ) -> Tensor:
        """The mean over the other episodes' steps; see `Baseline.__call__`."""
        alive = _check_several(returns, alive)
        if self.rows == "groups":
            return _mean_of_others_in_the_row(returns, alive)
        per_episode = torch.where(alive, returns, 0).reshape(-1, returns.shape[-1]).sum(0)
        lengths = alive.reshape(-1, returns.shape[-1]).sum(0)
        others = _mean_of_others(per_episode, lengths)
        return torch.where(alive, others, 0)


class TimeDependentLeaveOneOut(Baseline):
    r"""The mean of the other episodes at the same time, ``b_it = Σ_{j≠i} G_jt / #{j≠i alive}``.

    Rewards-to-go shrink as an episode goes on; a baseline that knows the time shrinks with them.
    Unbiased: it depends on the other episodes and on the time only. The last episode to be alive
    has nothing to be compared with: its baseline is 0 there.

    Example:
        >>> returns = torch.tensor([[3.0, 2.0, 1.0], [2.0, 1.0, 0.0]])
        >>> alive = torch.tensor([[True, True, True], [True, True, False]])
        >>> TimeDependentLeaveOneOut()(returns, alive)
        tensor([[1.5000, 2.0000, 2.5000],
                [1.0000, 2.0000, 0.0000]])

    References:
        Williams 1992, §4: the baseline may depend on anything but the unit's own output.
    """

    def __call__(
        self, returns: Tensor, alive: Tensor | None = None, observations: Tensor | None = None
    ) -> Tensor:
        """The mean over the other episodes alive at that time; see `Baseline.__call__`."""
        return _mean_of_others_in_the_row(returns, _check_several(returns, alive))


class StateValue(Baseline):
    r"""The value that earlier batches predict for the state and the time, ``V(s, t) = w·φ(s, t)``.

    w is the ridge regression of the last batch's returns, solved exactly: nothing to tune. With
    ``z`` the numbers of (s, t) in standard deviations from their means in that batch, cut off at
    ±5, the features are ``φ = [1, z, z², z³, tanh(W z + b)]``: the tanh are hidden units whose
    weights W and b are drawn once and stay. The present batch is compared with the w of earlier
    ones and only then regressed on, so the baseline knows nothing of the actions it is compared
    with: unbiased. The first batch is compared with 0.

    Args:
        ridge: The penalty on each squared weight, > 0, relative to the sum of squares of its
            feature.
        units: The number of hidden units.

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

    def __init__(self, ridge: float = 1e-3, units: int = 128) -> None:
        check_numbers(ridge=ridge)
        check_count(units, "units", least=0)
        self.ridge, self.units = ridge, units
        self.weights, self.mean, self.factor = torch.zeros(3, 0, dtype=torch.float64)
        self._hidden: tuple[Tensor, Tensor] | None = None

    def __call__(
        self, returns: Tensor, alive: Tensor | None = None, observations: Tensor | None = None
    ) -> Tensor:
        """The value predicted from earlier batches; see `Baseline.__call__`."""
        alive = _check(returns, alive)
        check_tensors(returns, "returns", observations=observations)
        if observations is None or observations.shape[:-1] != returns.shape:
            raise ShapeError(
                "`observations`",
                "None" if observations is None else f"shape {list(observations.shape)}",
                f"[{', '.join(map(str, returns.shape))}, D]",
                "pass the observation before each action, as numbers",
            )
        rows = torch.arange(returns.shape[0] if returns.ndim > 1 else 1)
        time = (rows.unsqueeze(-1) if returns.ndim > 1 else rows).expand(returns.shape)
        baseline = self.predict(observations, time).to(returns.dtype)
        self._fit(observations[alive], time[alive], returns[alive])
        return torch.where(alive, baseline, 0)

    def predict(self, observations: Tensor, time: Tensor) -> Tensor:
        """V(s, t) of observations ``[*batch, D]`` at times ``[*batch]``, float64 ``[*batch]``."""
        if not len(self.weights):
            return torch.zeros(time.shape, dtype=torch.float64)
        value: Tensor = self._features(_numbers(observations, time)) @ self.weights
        return value

    def learned_state(self, features: int) -> dict[str, Tensor]:
        """Weights, means and factors for observations of D numbers; see `Baseline.learned_state`.

        Args:
            features: D.
        """
        zeros = self.weights.new_zeros
        numbers = features + 1  # the time is one
        return {
            "weights": zeros(1 + 3 * numbers + self.units),
            "mean": zeros(numbers),
            "factor": zeros(numbers),
        }

    def _fit(self, observations: Tensor, time: Tensor, returns: Tensor) -> None:
        numbers = _numbers(observations, time)
        spread = numbers.std(0, correction=0)
        self.mean = numbers.mean(0)
        # What never differs but for rounding says nothing.
        self.factor = torch.where(spread > 1e-6 * self.mean.abs(), 1 / spread, 0)
        features = self._features(numbers)
        gram = features.T @ features
        diagonal = gram.diagonal()
        diagonal.add_(self.ridge * torch.where(diagonal > 0, diagonal, 1))
        self.weights = torch.linalg.solve(gram, features.T @ returns.double())

    def _features(self, numbers: Tensor) -> Tensor:
        """φ, float64 ``[*batch, 3 (D + 1) + 1 + units]``."""
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


def _numbers(observations: Tensor, time: Tensor) -> Tensor:
    """``[s, t]``, float64 ``[*batch, D + 1]``."""
    return torch.cat([observations.double(), time.double().unsqueeze(-1)], -1)


def _mean_of_others(sums: Tensor, counts: Tensor) -> Tensor:
    """Σ of the other columns' ``sums`` over Σ of their ``counts``; 0 where they have none."""
    others = sums.sum(-1, keepdim=True) - sums
    number = counts.sum(-1, keepdim=True) - counts
    return torch.where(number > 0, others / number.clamp(min=1), 0)


def _mean_of_others_in_the_row(returns: Tensor, alive: Tensor) -> Tensor:
    """Row by row, of those alive; 0 where not alive."""
    others = _mean_of_others(torch.where(alive, returns, 0), alive.long())
    return torch.where(alive, others, 0)


def _check(returns: Tensor, alive: Tensor | None) -> Tensor:
    check_given(returns, "returns", "pass a return for each step of each episode")
    check_tensors(returns, "returns", returns=returns, alive=alive)
    if alive is None:
        return torch.ones_like(returns, dtype=torch.bool)
    if alive.shape != returns.shape:
        raise ShapeError(
            "`alive`",
            f"shape {list(alive.shape)}",
            f"the shape of returns, {list(returns.shape)}",
            "nothing is broadcast silently",
        )
    return alive


def _check_several(returns: Tensor, alive: Tensor | None) -> Tensor:
    alive = _check(returns, alive)
    if returns.ndim == 0 or returns.shape[-1] < 2:
        raise ShapeError(
            "`returns`",
            f"shape {list(returns.shape)}",
            "at least two episodes on the last axis",
            "collect more episodes, or use MovingAverage",
        )
    return alive


# The names under which the trainer and the command line know them.
BASELINES: dict[str, Callable[..., Baseline]] = {
    "none": NoBaseline,
    "moving-average": MovingAverage,
    "leave-one-out": LeaveOneOut,
    "time-dependent-leave-one-out": TimeDependentLeaveOneOut,
    "state-value": StateValue,
}
