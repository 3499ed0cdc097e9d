"""Exact expectations, gradients, variances and covariances, of a law and of any estimator."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import Distribution

from eligibility.errors import InvalidValueError, ShapeError
from eligibility.reinforce.exact.law import DEFAULT_LIMIT, Law, base_digits, check_limit, law

Policy: TypeAlias = Distribution | Law
Parameters: TypeAlias = Tensor | Sequence[Tensor]
# Outcomes stacked along their first axis (a tensor, or Trajectories) → a tensor.
Function: TypeAlias = Callable[[Any], Tensor]

_CHUNK = 8192
_LARGEST_COVARIANCE = 4096


@dataclass(frozen=True)
class Moments:
    """Exact mean and covariance of an estimator with P numbers.

    Attributes:
        mean: ``E[g]``, the shape that the estimator returns.
        covariance: ``E[(g − E g)(g − E g)ᵀ]``, shape ``[P, P]``, entries in the order of a flatten.
        batches: The number of batches that were enumerated.
    """

    mean: Tensor
    covariance: Float[Tensor, "P P"]
    batches: int

    @property
    def variance(self) -> Tensor:
        """The variance of each entry, the shape of the mean; its sum is the total variance."""
        return self.covariance.diagonal().reshape(self.mean.shape)


def expectation(policy: Policy, function: Function, **options: Any) -> Tensor:
    """Exact ``E[f(y)] = Σ_s p(y_s) f(y_s)``, differentiable in the policy's parameters.

    Args:
        policy: A distribution or a `Law`.
        function: Called once with all outcomes ``[S, *event]``; returns ``[S, *shape]``.
        options: ``nodes``, ``breaks``, ``limit`` of `law`.

    Returns:
        The expectation, shape ``[*shape]``.

    Raises:
        ShapeError: The function does not return one row for each outcome.

    Example:
        >>> die = torch.distributions.Categorical(torch.ones(6))
        >>> expectation(die, lambda face: face + 1.0)
        tensor(3.5000)
    """
    outcomes = law(policy, **options)
    results = _rows(function, outcomes)
    total: Tensor = torch.tensordot(outcomes.probs.to(results), results, dims=1)
    return total


def gradient(policy: Policy, reward: Function, wrt: Parameters, **options: Any) -> Tensor:
    """Exact policy gradient ``∂E[r(y)]/∂θ = Σ_s r(y_s) ∂p(y_s)/∂θ``, by differentiating the sum.

    Args:
        policy: A distribution or a `Law` whose log-probabilities depend on ``wrt``.
        reward: Called once with all outcomes; returns ``[S]``. It is a number to this function:
            no gradient flows through it.
        wrt: One tensor, or several (for instance ``list(module.parameters())``).
        options: ``nodes``, ``breaks``, ``limit`` of `law`.

    Returns:
        The shape of ``wrt``; of several tensors, all entries in order as one vector.

    Example:
        >>> logits = torch.zeros(2, requires_grad=True)
        >>> policy = torch.distributions.Categorical(logits=logits)
        >>> gradient(policy, torch.tensor([0.0, 4.0]).__getitem__, logits)
        tensor([-1.,  1.])
    """
    outcomes = law(policy, **options)
    with torch.no_grad():
        rewards = _rewards(reward, outcomes)
    return _differentiate(outcomes.probs @ rewards.to(outcomes.probs), wrt)


def eligibilities(policy: Policy, wrt: Parameters, **options: Any) -> Tensor:
    """``e_s = ∂ log p(y_s)/∂θ`` of every outcome, by one backward pass each.

    Args:
        policy: A distribution or a `Law` whose log-probabilities depend on ``wrt``.
        wrt: One tensor, or several.
        options: ``nodes``, ``breaks``, ``limit`` of `law`.

    Returns:
        ``[S, *wrt.shape]``; of several tensors ``[S, P]``.

    Example:
        >>> logits = torch.zeros(2, requires_grad=True)
        >>> eligibilities(torch.distributions.Categorical(logits=logits), logits)
        tensor([[ 0.5000, -0.5000],
                [-0.5000,  0.5000]])
    """
    log_probs = law(policy, **options).log_probs
    return torch.stack([_differentiate(log_prob, wrt) for log_prob in log_probs])


def moments(
    policy: Policy,
    estimator: Function,
    *,
    samples: int = 1,
    vectorized: bool = False,
    limit: int = DEFAULT_LIMIT,
    **options: Any,
) -> Moments:
    """Exact mean and covariance of an estimator, over all Sᴺ batches of N independent outcomes.

    Args:
        policy: A distribution or a `Law`.
        estimator: Called with a batch of N outcomes ``[N, *event]``, in the order of sampling;
            returns its estimate, any shape.
        samples: N.
        vectorized: The estimator takes many batches at once, ``[M, N, *event]``, and returns
            ``[M, *shape]``; ``torch.func.vmap`` makes such a function from a plain one.
        limit: The largest number of batches to enumerate.
        options: ``nodes``, ``breaks`` of `law`.

    Raises:
        InvalidValueError: There are more than ``limit`` batches, or N < 1.
        ShapeError: The estimate has too many entries for a covariance.

    Notes:
        Each sample weighs alike in a batch, but an estimator may depend on their order, as a
        moving average does, so permutations are enumerated as well.

    Example:
        Centring with a mean that includes the sample itself loses one N-th of the gradient.

        >>> logits = torch.zeros(2, dtype=torch.float64, requires_grad=True)
        >>> policy = torch.distributions.Categorical(logits=logits)
        >>> score = eligibilities(policy, logits)
        >>> reward = torch.tensor([0.0, 4.0], dtype=torch.float64)
        >>> def centred(action):
        ...     r = reward[action]
        ...     return (r - r.mean()) @ score[action] / len(action)
        >>> moments(policy, centred, samples=4).mean / gradient(
        ...     policy, reward.__getitem__, logits)
        tensor([0.7500, 0.7500], dtype=torch.float64)
    """
    outcomes = law(policy, **options)
    if samples < 1:
        raise InvalidValueError("`samples`", str(samples), "at least 1", "pass a batch size")
    batches = len(outcomes) ** samples
    check_limit(batches, "batches", limit, "use fewer samples or outcomes, or raise `limit`")
    mass, mean, scatter = 0.0, torch.zeros(()), torch.zeros(())
    shape = torch.Size()
    for weights, estimates in _estimates(outcomes, estimator, samples, vectorized):
        shape, flat = estimates.shape[1:], estimates.reshape(len(weights), -1)
        chunk_mass = float(weights.sum())
        if chunk_mass == 0.0:  # every batch of the chunk underflows
            continue
        chunk_mean = weights @ flat / chunk_mass
        centred, shift = flat - chunk_mean, chunk_mean - mean
        # Chan, Golub and LeVeque 1979: chunks are merged without the cancellation of E[g²] − E[g]².
        scatter = scatter + centred.T @ (weights[:, None] * centred)
        scatter = scatter + torch.outer(shift, shift) * (mass * chunk_mass / (mass + chunk_mass))
        mass += chunk_mass
        mean = mean + shift * (chunk_mass / mass)
    return Moments(mean.reshape(shape), scatter, batches)


def variance(policy: Policy, estimator: Function, **options: Any) -> Tensor:
    """Exact variance of each entry of an estimate; arguments as in `moments`.

    Example:
        The Bernoulli toy of Tucker et al. 2017 (REBAR): E[(b − 0.499)²] at p = 0.5.

        >>> logit = torch.zeros((), dtype=torch.float64, requires_grad=True)
        >>> coin = torch.distributions.Bernoulli(logits=logit)
        >>> def reinforce(b):
        ...     return ((b - 0.499) ** 2 * (b - 0.5)).mean()
        >>> print(f"{variance(coin, reinforce):.7f}")
        0.0156251
    """
    return moments(policy, estimator, **options).variance


def covariance(policy: Policy, estimator: Function, **options: Any) -> Float[Tensor, "P P"]:
    """Exact covariance ``[P, P]`` of an estimate with P entries; arguments as in `moments`.

    Example:
        >>> coin = torch.distributions.Bernoulli(torch.tensor(0.5))
        >>> covariance(coin, lambda b: torch.cat([b, -b]))
        tensor([[ 0.2500, -0.2500],
                [-0.2500,  0.2500]])
    """
    return moments(policy, estimator, **options).covariance


def leave_one_out_variance(
    policy: Policy, reward: Function, wrt: Parameters, *, samples: int, **options: Any
) -> Tensor:
    """Exact variance of REINFORCE with the leave-one-out baseline, for any N, without batches.

    ``Var = 2/(N(N − 1)) · [(N − 2) V/2 + ζ₂]`` with ``V = Var((r − E r) e)`` and
    ``ζ₂ = Var(½ (r₁ − r₂)(e₁ − e₂))``: the estimator is the U-statistic of that pair.

    Args:
        policy: A distribution or a `Law` whose log-probabilities depend on ``wrt``.
        reward: Called once with all outcomes; returns ``[S]``.
        wrt: One tensor, or several.
        samples: N, at least 2.
        options: ``nodes``, ``breaks``, ``limit`` of `law`.

    Returns:
        The variance of each entry: the shape of ``wrt``, or ``[P]``.

    Raises:
        InvalidValueError: ``samples`` is 1: there is nothing left to centre with.

    Example:
        >>> logit = torch.zeros((), dtype=torch.float64, requires_grad=True)
        >>> coin = torch.distributions.Bernoulli(logits=logit)
        >>> toy = leave_one_out_variance(coin, lambda b: (b - 0.499) ** 2, logit, samples=2)
        >>> print(f"{toy:.2g}")
        2.5e-07

    References:
        Hoeffding 1948, Annals of Mathematical Statistics 19:293-325, for the U-statistic.
    """
    if samples < 2:
        raise InvalidValueError(
            "`samples`", str(samples), "at least 2", "one sample cannot be centred"
        )
    outcomes = law(policy, **options)
    score = eligibilities(outcomes, wrt).reshape(len(outcomes), -1)
    probs = outcomes.probs.detach().to(score)
    rewards = _rewards(reward, outcomes).detach().to(score)
    mean_reward = probs @ rewards
    truth = (probs * rewards) @ score
    v_mean = probs @ (((rewards - mean_reward)[:, None] * score) - truth).square()
    zeta = torch.zeros_like(truth)
    for weight, r, e in zip(probs, rewards, score, strict=True):
        pair = (r - rewards)[:, None] * (e - score) / 2
        zeta += weight * (probs @ (pair - truth).square())
    total = 2 / (samples * (samples - 1)) * ((samples - 2) * v_mean / 2 + zeta)
    return total.reshape(wrt.shape) if isinstance(wrt, Tensor) else total


def _estimates(
    outcomes: Law, estimator: Function, samples: int, vectorized: bool
) -> Iterator[tuple[Tensor, Tensor]]:
    """Chunks of batches: their probabilities ``[M]`` and their estimates ``[M, *shape]``."""
    log_probs = outcomes.log_probs.detach()
    size = len(outcomes)
    for start in range(0, size**samples, _CHUNK):
        numbers = torch.arange(start, min(start + _CHUNK, size**samples), device=log_probs.device)
        index = base_digits(numbers, size, samples)
        batches = outcomes.values[index]
        if vectorized:
            estimates = estimator(batches).detach()
        else:
            estimates = torch.stack([estimator(batches[i]).detach() for i in range(len(index))])
        _check_estimates(estimates, len(index))
        estimates = estimates if estimates.is_floating_point() else estimates.to(log_probs)
        yield log_probs[index].sum(1).exp().to(estimates), estimates


def _check_estimates(estimates: Tensor, rows: int) -> None:
    if estimates.ndim == 0 or estimates.shape[0] != rows:
        raise ShapeError(
            "the result of a vectorized `estimator`",
            f"shape {list(estimates.shape)}",
            f"[{rows}, ...]",
            "return one estimate for each batch",
        )
    entries = math.prod(estimates.shape[1:])
    if entries > _LARGEST_COVARIANCE:
        raise ShapeError(
            "the result of `estimator`",
            f"{entries} numbers",
            f"at most {_LARGEST_COVARIANCE}, because the covariance is a matrix",
            "estimate the gradient of fewer parameters",
        )


def _rows(function: Function, outcomes: Law) -> Tensor:
    """The function of every outcome, one row each."""
    results = function(outcomes.values)
    if results.ndim == 0 or results.shape[0] != len(outcomes):
        raise ShapeError(
            "the result of the function",
            f"shape {list(results.shape)}",
            f"[{len(outcomes)}, ...]",
            "it is called once with all outcomes and returns one row for each",
        )
    return results if results.is_floating_point() else results.to(outcomes.log_probs)


def _rewards(reward: Function, outcomes: Law) -> Float[Tensor, " outcomes"]:
    rewards = _rows(reward, outcomes)
    if rewards.ndim != 1:
        raise ShapeError(
            "the result of `reward`",
            f"shape {list(rewards.shape)}",
            f"[{len(outcomes)}]",
            "return one number for each outcome",
        )
    return rewards


def _differentiate(scalar: Tensor, wrt: Parameters) -> Tensor:
    """The gradient in the shape of ``wrt``, or as one vector."""
    tensors = [wrt] if isinstance(wrt, Tensor) else list(wrt)
    gradients: Sequence[Tensor | None] = [None]
    if scalar.requires_grad:
        # The graph is the caller's, who may want to differentiate it again.
        gradients = torch.autograd.grad(scalar, tensors, retain_graph=True, allow_unused=True)
    if all(gradient is None for gradient in gradients):
        raise InvalidValueError(
            "`wrt`",
            "nothing that the policy depends on",
            "tensors that require a gradient and from which the policy was computed",
            "build the policy after requires_grad_(), and pass the same tensor objects",
        )
    filled = [
        torch.zeros_like(tensor) if gradient is None else gradient
        for tensor, gradient in zip(tensors, gradients, strict=True)
    ]
    return filled[0] if isinstance(wrt, Tensor) else torch.cat([g.flatten() for g in filled])
