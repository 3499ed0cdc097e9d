"""A separate baseline for every weight: Williams' ``b_ij`` in ``Δw_ij = α (r − b_ij) e_ij``."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from eligibility.arguments import check_given
from eligibility.errors import InvalidTypeError
from eligibility.reinforce.weights import PerSampleEligibilities
from eligibility.scalars import check_numbers, described
from eligibility.shapes import check_shape


class PerWeight:
    r"""The baseline of least variance for each weight, from earlier batches.

    ``b_ij = E[r e_ij²] / E[e_ij²]`` minimises the variance of ``(r − b_ij) e_ij``. Both
    expectations are exponential averages over *earlier* batches, so b_ij does not depend on the
    samples that it is used on and is unbiased. Computed from the same batch it is biased, and for a
    batch of one it makes the gradient vanish. For the first batch b_ij is 0.

    Args:
        rate: The weight of the newest batch in the averages, in (0, 1].

    Example:
        >>> from torch import nn
        >>> from eligibility import per_sample_eligibilities
        >>> policy, baseline = nn.Linear(1, 2, bias=False), PerWeight()
        >>> _ = nn.init.zeros_(policy.weight)
        >>> action, reward = torch.tensor([0, 1]), torch.tensor([1.0, 3.0])
        >>> for _ in range(2):
        ...     e = per_sample_eligibilities(policy, torch.ones(2, 1), action)
        ...     gradient = baseline.gradient(e, reward)
        >>> baseline(e)["weight"]
        tensor([[2.], [2.]])
        >>> gradient["weight"]
        tensor([[-0.5000], [ 0.5000]])

    References:
        Williams 1992, §4, for b_ij and the condition on it; Peters & Schaal 2008, Neural Networks
        21:682-697, for the value of least variance.
    """

    def __init__(self, rate: float = 0.1) -> None:
        check_numbers(rate=rate)
        self.rate = rate
        self.rewarded_squares: dict[str, Tensor] = {}
        self.squares: dict[str, Tensor] = {}

    def __call__(self, eligibilities: PerSampleEligibilities) -> dict[str, Tensor]:
        """The present ``b_ij`` of every parameter, by name; 0 where nothing is known yet."""
        _check_eligibilities(eligibilities)
        return {
            name: self._ratio(name, factors.parameter)
            for name, factors in eligibilities.factors.items()
        }

    def gradient(
        self, eligibilities: PerSampleEligibilities, rewards: Float[Tensor, " N"]
    ) -> dict[str, Tensor]:
        """``1/N Σ_n (r_n − b_ij) e_ij``, the ascent direction; then learn from this batch.

        Args:
            eligibilities: Eligibilities of N samples, from `eligibility.per_sample_eligibilities`.
            rewards: What each sample is credited with, ``[N]``.

        Returns:
            Parameter name → gradient estimate, shape of the parameter.

        Raises:
            ShapeError: Another number of rewards than of samples.
        """
        check_given(rewards, "rewards", "pass one number for each sample")
        _check_eligibilities(eligibilities)
        shape = eligibilities.log_prob.shape
        check_shape(rewards, shape, "rewards", "one number for each sample")
        baselines = self(eligibilities)
        rewarded, plain = eligibilities.mean(rewards), eligibilities.mean()
        estimate = {name: rewarded[name] - baselines[name] * plain[name] for name in baselines}
        self._average(eligibilities.second_moment(rewards), eligibilities.second_moment())
        return estimate

    def subtract(
        self, gradients: dict[str, Tensor], eligibilities: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        """``g_n − b_ij e_n`` where a sample is a whole episode; then learn from this batch.

        In an episode every step has a different credit, and ``g = Σ_t A_t e(t)`` is no longer
        one reward times ``e = Σ_t e(t)``. The value of least variance is then
        ``b_ij = E[g e] / E[e²]``, which for one reward an episode is `PerWeight`'s own.

        Args:
            gradients: Parameter name → g of each of N episodes, ``[N, *shape]``.
            eligibilities: Parameter name → e of the same episodes, ``[N, *shape]``.

        Returns:
            Parameter name → ``[N, *shape]``; its mean over the first axis is the estimate.

        Example:
            One reward an episode, and two episodes: the same as `gradient`.

            >>> e = {"w": torch.tensor([[0.5], [-0.5]])}
            >>> reward, baseline = torch.tensor([[1.0], [3.0]]), PerWeight()
            >>> for _ in range(2):
            ...     rest = baseline.subtract({"w": reward * e["w"]}, e)
            >>> rest["w"].mean(0)
            tensor([-0.5000])

        References:
            Williams 1992, §5, for the sum of eligibilities over an episode.
        """
        rest = {
            name: g - self._ratio(name, g[0]) * eligibilities[name] for name, g in gradients.items()
        }
        self._average(
            {name: (g * eligibilities[name]).mean(0) for name, g in gradients.items()},
            {name: e.square().mean(0) for name, e in eligibilities.items()},
        )
        return rest

    def state_dict(self) -> dict[str, dict[str, Tensor]]:
        """The two averages."""
        return {"rewarded_squares": dict(self.rewarded_squares), "squares": dict(self.squares)}

    def load_state_dict(self, state: dict[str, dict[str, Tensor]]) -> None:
        """Continue from a `state_dict`."""
        self.rewarded_squares = dict(state["rewarded_squares"])
        self.squares = dict(state["squares"])

    def _ratio(self, name: str, like: Tensor) -> Tensor:
        """``b_ij`` of one parameter, of the shape of ``like``."""
        squares = self.squares.get(name)
        if squares is None:
            return torch.zeros_like(like)
        known = squares > 0
        ratio = self.rewarded_squares[name] / torch.where(known, squares, 1)
        return torch.where(known, ratio, 0)

    def _average(self, rewarded_squares: dict[str, Tensor], squares: dict[str, Tensor]) -> None:
        """Let the newest batch's moments enter the averages."""
        pairs = ((self.rewarded_squares, rewarded_squares), (self.squares, squares))
        for average, moment in pairs:
            for name, value in moment.items():
                # From the first batch on, not from 0: the start cancels in the ratio.
                average[name] = torch.lerp(average.get(name, value), value, self.rate)


def _check_eligibilities(given: object) -> None:
    if not isinstance(given, PerSampleEligibilities):
        raise InvalidTypeError(
            "`eligibilities`",
            described(given),
            "eligibilities of every weight",
            "pass what eligibility.per_sample_eligibilities returns",
        )
