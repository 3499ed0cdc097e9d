"""A probability law as a finite list: outcomes and their differentiable log-probabilities."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import (
    Categorical,
    Distribution,
    Independent,
    Multinomial,
    OneHotCategorical,
)

from eligibility.errors import (
    InvalidTypeError,
    InvalidValueError,
    ShapeError,
    UnsupportedDistributionError,
)
from eligibility.reinforce.exact.quadrature import quadrature

DEFAULT_LIMIT = 1_000_000


@dataclass(frozen=True)
class Law:
    """Outcomes and their log-probabilities; `law` and `TabularMDP.law` make them.

    Attributes:
        values: The outcomes, indexable along their first axis by an index tensor: a tensor
            ``[S, *event]``, or `Trajectories`.
        log_probs: ``log p`` of each, shape ``[S]``, differentiable in the policy's parameters.

    Raises:
        InvalidValueError: The probabilities do not sum to 1.

    Example:
        >>> logit = torch.tensor(0.0)
        >>> coin = Law(torch.tensor([0, 1]), torch.stack([-logit, logit]).sigmoid().log())
        >>> coin.probs
        tensor([0.5000, 0.5000])
    """

    values: Any
    log_probs: Float[Tensor, " outcomes"]

    def __post_init__(self) -> None:
        total = float(self.log_probs.detach().double().exp().sum())
        tolerance = math.sqrt(torch.finfo(self.log_probs.dtype).eps)
        if not abs(total - 1.0) <= tolerance:
            raise InvalidValueError(
                "the probabilities of the law",
                f"a sum of {total:.9g}",
                f"1 to within {tolerance:.1g}",
                "list every outcome; for a quadrature use more nodes, or breaks where the density "
                "is not smooth",
            )

    @property
    def probs(self) -> Float[Tensor, " outcomes"]:
        """The probability of each outcome, differentiable."""
        return self.log_probs.exp()

    def __len__(self) -> int:
        return self.log_probs.shape[0]


def law(
    policy: Any,
    *,
    nodes: int | None = None,
    breaks: Sequence[float] = (),
    limit: int = DEFAULT_LIMIT,
) -> Law:
    """Every outcome of a distribution with its probability.

    ``Σ_s p(y_s) = 1``. A batch of distributions is one joint law of independent parts: its outcomes
    have the shape ``[*batch, *event]``, and there are as many as the product of the supports.

    Args:
        policy: A distribution with a finite support (``enumerate_support``, or a Multinomial, or
            an Independent of them), or one scalar continuous distribution. A `Law` is returned as
            it is.
        nodes: Quadrature nodes of a continuous law. A Normal without breaks uses Gauss-Hermite
            (default 64), exact for polynomials of degree ``2 nodes − 1``; any other law a
            double-exponential rule on each smooth piece (default 200).
        breaks: Where a continuous density, or the reward, is not smooth.
        limit: The largest number of outcomes to enumerate.

    Returns:
        The law; outcomes of probability 0 are left out.

    Raises:
        InvalidValueError: There are more than ``limit`` outcomes, or a quadrature is inaccurate.
        ShapeError: A continuous law is not scalar.
        UnsupportedDistributionError: The support cannot be enumerated.
        InvalidReinforceError: The support of a continuous law moves with a parameter.

    Notes:
        An outcome of probability 0 is never sampled, and what a derivative towards it would add is
        not in the law either, as it is not in any score-function estimate.

        The nodes of a quadrature stay where they are when the law is differentiated: the
        derivative is that of the density, which is what the score function estimates.

    Example:
        >>> law(torch.distributions.Binomial(2, torch.tensor(0.5))).probs
        tensor([0.2500, 0.5000, 0.2500])
        >>> law(torch.distributions.Bernoulli(torch.full((3,), 0.5))).values.shape
        torch.Size([8, 3])
    """
    if isinstance(policy, Law):
        return policy
    if not isinstance(policy, Distribution):
        raise InvalidTypeError(
            "`policy`",
            type(policy).__name__,
            "a torch.distributions object, or a Law",
            "build the distribution of the outcomes first",
        )
    joint = policy
    while isinstance(joint, Independent):
        joint = joint.base_dist
    if isinstance(joint, Multinomial) or joint.has_enumerate_support:
        values = _product(_marginal_support(joint, limit), joint.batch_shape, limit)
        values = values[_is_allowed(joint, values)]
        log_weights = torch.zeros((), device=values.device)
    elif joint.batch_shape.numel() * joint.event_shape.numel() != 1:
        raise ShapeError(
            "`policy`",
            f"{type(policy).__name__} with batch shape {list(joint.batch_shape)} and event shape "
            f"{list(joint.event_shape)}",
            "a finite support, or one scalar continuous law",
            "reduce the problem to one scalar, or build a Law from your own nodes",
        )
    else:
        values, log_weights = quadrature(joint, nodes, breaks)
    with torch.no_grad():
        possible = (_joint_log_prob(joint, values) + log_weights).exp() > 0
    # Evaluated again: the derivative of an outcome that is impossible would poison the others.
    values, log_weights = values[possible], log_weights.expand(len(possible))[possible]
    log_probs = _joint_log_prob(joint, values)
    return Law(values, log_probs + log_weights.to(log_probs))


def _is_allowed(dist: Distribution, values: Tensor) -> Tensor:
    """Which outcomes of a categorical family have only parts of positive probability, ``[S]``."""
    # By the probabilities: torch clamps log_prob of an impossible outcome, a mask refuses it.
    if isinstance(dist, Categorical):
        probs = dist.probs.detach().expand(*values.shape, -1)
        allowed = probs.gather(-1, values[..., None]) > 0
    elif isinstance(dist, (OneHotCategorical, Multinomial)):
        allowed = (values == 0) | (dist.probs.detach() > 0)
    else:
        return torch.ones(len(values), dtype=torch.bool, device=values.device)
    return allowed.reshape(len(values), -1).all(1)


def _joint_log_prob(dist: Distribution, values: Tensor) -> Tensor:
    """The log-probability of each outcome of the whole batch, ``[S]``."""
    log_prob: Tensor = dist.log_prob(values)
    return log_prob.reshape(len(values), -1).sum(1)


def check_limit(count: int, what: str, limit: int, remedy: str) -> None:
    """Raise if an enumeration would take more than ``limit`` steps."""
    if count > limit:
        size = str(count) if count < 10**12 else f"about 10^{len(str(count)) - 1}"
        raise InvalidValueError(f"enumeration of {what}", size, f"at most {limit}", remedy)


def _product(support: Tensor, batch_shape: torch.Size, limit: int) -> Tensor:
    """Every assignment of the support's S values to the batch: ``[S^B, *batch, *event]``."""
    size, parts = len(support), batch_shape.numel()
    check_limit(size**parts, "outcomes", limit, "make the problem smaller, or raise `limit`")
    index = base_digits(torch.arange(size**parts, device=support.device), size, parts)
    return support[index].reshape(-1, *batch_shape, *support.shape[1:])


def base_digits(number: Tensor, base: int, digits: int) -> Tensor:
    """The digits of each number, the most significant first: ``[*shape, digits]``."""
    powers = [base**place for place in reversed(range(digits))]
    return torch.stack([number // power % base for power in powers], -1)


def _marginal_support(dist: Distribution, limit: int) -> Tensor:
    """The values that each member of the batch can take: ``[S, *event]``."""
    if isinstance(dist, Multinomial):
        counts = torch.unique(torch.as_tensor(dist.total_count))  # of the drop-in, a tensor
        if len(counts) != 1:
            raise _different_supports(dist)
        return compositions(int(counts), dist.event_shape[0], limit).to(dist.probs)
    try:
        values = dist.enumerate_support(expand=False)
    except NotImplementedError as error:
        raise _different_supports(dist) from error
    return torch.as_tensor(values).reshape(-1, *dist.event_shape)


def _different_supports(dist: Distribution) -> UnsupportedDistributionError:
    return UnsupportedDistributionError(
        f"support of {type(dist).__name__}",
        "members of the batch with different total counts",
        "the same support for each of them",
        "build the law of each member by itself",
    )


def compositions(total: int, categories: int, limit: int) -> Tensor:
    """Every vector of K counts that sums to ``total``: the gaps between K − 1 bars among stars."""
    slots = total + categories - 1
    count = math.comb(slots, categories - 1)
    check_limit(count, "counts", limit, "use fewer trials or categories, or raise `limit`")
    several = itertools.combinations(range(slots), categories - 1)
    return torch.tensor([(-1, *bars, slots) for bars in several]).diff(dim=1) - 1
