"""What is subtracted from a return: less variance, and, if it ignores the own action, no bias.

A baseline is called with the returns of independent episodes, time first and episodes last, and
answers with what to subtract from each: ``advantage = returns − baseline(returns, alive)``. The
rows need not be times: with several answers to each of several prompts, `LeaveOneOut` can be told.

All are unbiased. The mean that includes the own episode is not among them: it shrinks the gradient
by exactly 1/N.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from eligibility.errors import ShapeError
from eligibility.reinforce.baseline import Baseline, check_returns
from eligibility.reinforce.state_value import StateValue
from eligibility.scalars import check_choice, check_numbers


class NoBaseline(Baseline):
    """Zero: unbiased, with the largest variance. The reference for the other baselines.

    Example:
        >>> NoBaseline()(torch.tensor([1.0, 3.0]))
        tensor([0., 0.])
    """

    def __call__(
        self, returns: Tensor, alive: Tensor | None = None, observations: Tensor | None = None
    ) -> Tensor:
        """0 everywhere; see `Baseline.__call__`."""
        check_returns(returns, alive)
        return torch.zeros_like(returns)


class MovingAverage(Baseline):
    r"""Williams' reinforcement comparison, ``r̄ ← ρ r + (1 − ρ) r̄``, over batches.

    The current batch is compared with the average over *earlier* batches and enters the average
    afterwards, so the baseline is unbiased. The first batch is compared with 0.

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
        alive = check_returns(returns, alive)
        baseline = torch.where(alive, self.average.to(returns.dtype), 0)
        newest = returns[alive].double().mean()
        self.average = self.rate * newest + (1 - self.rate) * self.average
        return baseline


class LeaveOneOut(Baseline):
    r"""The mean return of the other episodes, ``b_i = Σ_{j≠i} Σ_t G_jt / Σ_{j≠i} T_j``.

    It does not depend on episode i, so it is unbiased. With returns ``[B]`` it is the leave-one-out
    estimator of the bandit literature. Needs two episodes.

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

    Rewards-to-go shrink as an episode goes on; a baseline that depends on the time shrinks with
    them. It depends only on the other episodes and on the time, so it is unbiased. Once only one
    episode is alive, there is nothing to compare it with, and its baseline is 0.

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


def _mean_of_others(sums: Tensor, counts: Tensor) -> Tensor:
    """Σ of the other columns' ``sums`` over Σ of their ``counts``; 0 where they have none."""
    others = sums.sum(-1, keepdim=True) - sums
    number = counts.sum(-1, keepdim=True) - counts
    return torch.where(number > 0, others / number.clamp(min=1), 0)


def _mean_of_others_in_the_row(returns: Tensor, alive: Tensor) -> Tensor:
    """Row by row, of those alive; 0 where not alive."""
    others = _mean_of_others(torch.where(alive, returns, 0), alive.long())
    return torch.where(alive, others, 0)


def _check_several(returns: Tensor, alive: Tensor | None) -> Tensor:
    alive = check_returns(returns, alive)
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
