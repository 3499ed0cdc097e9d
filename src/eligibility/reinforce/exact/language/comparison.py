"""Exact bias and variance of a language model's policy gradient, estimator by estimator."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor

from eligibility.errors import InvalidValueError, ShapeError
from eligibility.reinforce.exact.language.answers import (
    Answers,
    answer_kl,
    answers,
    interpolated,
    language_size,
)
from eligibility.reinforce.exact.language.estimators import CORRECTIONS, TokenEstimator
from eligibility.reinforce.exact.language.objectives import AnswerGroups
from eligibility.reinforce.exact.law import DEFAULT_LIMIT, Law, check_limit
from eligibility.shapes import check_shape

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Logits: TypeAlias = Float[Tensor, "states V"]
Reward: TypeAlias = Callable[[Answers], Tensor] | Tensor

_CHUNK = 4096


@dataclass(frozen=True)
class EstimatorError:
    """How far one estimate of the gradient is from the gradient g* = ∇(E[R] − β KL).

    Every number but `angle` is relative: lengths to ‖g*‖, squares to ‖g*‖².

    Attributes:
        estimator: Its name.
        drift: How far the behaviour was from the policy: 0 on-policy, 1 the behaviour given.
        behaviour_kl: ``KL(π ‖ μ)`` of whole answers, in nats; infinite where μ never draws.
        group_size: G.
        mean: E[g], ``[P]``, in the units of the reward.
        truth: g*, ``[P]``.
        variance: ``E‖g − E g‖² / ‖g*‖²``.
    """

    estimator: str
    drift: float
    behaviour_kl: float
    group_size: int
    mean: Float[Tensor, " P"]
    truth: Float[Tensor, " P"]
    variance: float

    @property
    def bias(self) -> float:
        """``‖E g − g*‖ / ‖g*‖``."""
        return float((self.mean - self.truth).norm() / self.truth.norm())

    @property
    def length(self) -> float:
        """``‖E g‖ / ‖g*‖``; 1 with angle 0 is unbiased."""
        return float(self.mean.norm() / self.truth.norm())

    @property
    def angle(self) -> float:
        """The angle between E[g] and g* in degrees; NaN if E[g] is 0."""
        sine, cosine = _parts(self.mean, self.truth)
        return math.degrees(math.atan2(sine, cosine)) if self.length > 0 else math.nan

    @property
    def mse(self) -> float:
        """``E‖g − g*‖² / ‖g*‖² = variance + bias²``."""
        return self.variance + self.bias**2

    @property
    def rescaled_mse(self) -> float:
        """The least ``E‖c g − g*‖² / ‖g*‖²`` over all factors c: what no learning rate repairs.

        1 is an estimate without any use. An estimate that is the gradient times a constant is not
        punished for the constant, as it is by `mse`.
        """
        _, along = _parts(self.mean, self.truth)
        second_moment = self.variance + self.length**2
        return 1 - along**2 / second_moment if second_moment > 0 else 1.0


def _parts(mean: Tensor, truth: Tensor) -> tuple[float, float]:
    """E[g] across g* and along it, in units of ‖g*‖."""
    size = truth.norm()
    along = (mean @ truth) / size**2
    return float((mean - along * truth).norm() / size), float(along)


@dataclass(frozen=True)
class Comparison:
    """What `compare` found; prints as a table.

    Attributes:
        errors: One an estimator, drift and group size, in the order in which they were asked for.
        answers: The number of answers that the language has.
        kl_coef: β.
    """

    errors: tuple[EstimatorError, ...]
    answers: int
    kl_coef: float

    def __getitem__(self, estimator: str) -> tuple[EstimatorError, ...]:
        """The errors of one estimator, by its name."""
        found = tuple(error for error in self.errors if error.estimator == estimator)
        if not found:
            names = ", ".join(map(repr, dict.fromkeys(e.estimator for e in self.errors)))
            raise InvalidValueError("the estimator", repr(estimator), f"one of {names}", "name it")
        return found

    def text(self) -> str:
        """The table: a row an estimator, a block for each drift and group size."""
        from eligibility.reinforce.exact.language.rendering import table

        return table(self)

    def __str__(self) -> str:
        return self.text()

    def plot(self, path: str | Path | None = None) -> Figure:
        """Bias, variance and error over the drift, or over the group size if there is one drift.

        Args:
            path: Where to save it as well; the name's ending says in which format.

        Raises:
            MissingDependencyError: matplotlib is not installed.
        """
        from eligibility.reinforce.exact.language.rendering import figure

        return figure(self, path)


def compare(
    policy: Float[Tensor, "*_"],
    behaviour: Float[Tensor, "*_"],
    reward: Reward,
    reference: Float[Tensor, "*_"] | None = None,
    *,
    estimators: Sequence[TokenEstimator] = CORRECTIONS,
    drifts: Sequence[float] = (0.0, 0.25, 0.5, 1.0),
    group_sizes: Sequence[int] = (2,),
    kl_coef: float = 0.0,
    wrt: Tensor | None = None,
    limit: int = DEFAULT_LIMIT,
) -> Comparison:
    """Exact bias, variance and mean squared error of estimators, over all groups of answers.

    ``g* = ∇(E_π[R] − β KL(π ‖ π_ref))``. G answers are drawn from a behaviour μ; an estimator makes
    an objective of them (`TokenEstimator`), and g is its gradient.

    Args:
        policy: Logits of the policy, one row for each prefix: ``[states, V]`` (see `answers`).
        behaviour: Logits of the policy that draws, same shape; −inf for what top-k or top-p cut.
        reward: A function of all `Answers` that returns ``[S]``, or the ``[S]`` numbers.
        reference: Logits of π_ref; needed if an estimator has a divergence, or β is not 0.
        estimators: Ready made: `CORRECTIONS` (default), `BASELINES`, `KL_ESTIMATORS`.
        drifts: Behaviours on the straight line through the logits: 0 the policy, 1 ``behaviour``.
        group_sizes: G, one or several.
        kl_coef: β.
        wrt: The parameters from which ``policy`` was computed; None: its logits are free.
        limit: The largest number of answers, and of groups, to enumerate.

    Returns:
        The errors; printing them prints a table.

    Raises:
        ShapeError: The tables are not those of one language, or the rewards not one an answer.
        InvalidValueError: Nothing to compare with (the gradient is 0), an estimator that is not
            finite at this group size, a reference that is missing, or too many groups.

    Notes:
        A group has no order, so groups are enumerated as multisets: ``C(S + G − 1, G)`` of them. An
        estimator of your own must not depend on the order of answers either.

    Example:
        Three tokens, at most two of them; the behaviour is flatter than the policy.

        >>> policy = torch.tensor([[1.0, 0.0, 0.5], [0.0, 2.0, 1.0], [1.5, 0.0, 0.0]]).double()
        >>> def reward(answers):  # the number of zeros that were written, if the answer ended
        ...     return ((answers.tokens == 0) & answers.mask).sum(-1) * answers.ended.double()
        >>> comparison = compare(policy, policy / 2, reward, drifts=[1.0])
        >>> [round(comparison[name][0].bias, 3) for name in ("none", "sequence ratio")]
        [0.039, 0.0]
    """
    language_size(policy)  # which refuses what is no language
    for name, table in (("behaviour", behaviour), ("reference", reference)):
        if table is not None:
            check_shape(table, policy.shape, name, "logits over the policy's prefixes and tokens")
    if kl_coef or any(estimator.needs_reference for estimator in estimators):
        _check_divergence(estimators, reference, kl_coef)
    language = answers(policy, limit=limit)
    rewards = _rewards(reward, language)
    scores = _scores(policy, language.values, wrt)
    truth = _truth(language, rewards, reference, kl_coef, scores)
    errors = []
    for drift in drifts:
        drawn = interpolated(policy.detach(), behaviour, drift)
        problem = _Problem(policy.detach(), drawn, reference, language.values, rewards, scores)
        divergence = float(answer_kl(policy.detach(), drawn))
        for size in group_sizes:
            groups, weights = _groups(problem, size, limit)
            for estimator in estimators:
                mean, variance = _moments(problem, estimator, groups, weights, kl_coef)
                relative = variance / float(truth @ truth)
                errors.append(
                    EstimatorError(estimator.name, drift, divergence, size, mean, truth, relative)
                )
    return Comparison(tuple(errors), len(language), kl_coef)


@dataclass(frozen=True)
class _Problem:
    """What every estimator of one behaviour shares; S answers of T tokens, P parameters."""

    policy: Logits
    behaviour: Logits
    reference: Logits | None
    every: Answers
    rewards: Float[Tensor, " S"]
    scores: Float[Tensor, "S T P"]


def _moments(
    problem: _Problem,
    estimator: TokenEstimator,
    groups: Int[Tensor, "M G"],
    weights: Float[Tensor, " M"],
    kl_coef: float,
) -> tuple[Float[Tensor, " P"], float]:
    """E[g] and E‖g − E g‖²."""
    chunks = torch.split(groups, _CHUNK)
    gradients = torch.cat([_gradients(problem, estimator, chunk, kl_coef) for chunk in chunks])
    mean = weights @ gradients
    spread = (gradients - mean).square().sum(-1)
    if not bool(torch.isfinite(mean).all()):
        raise InvalidValueError(
            f"the estimate {estimator.name!r} of {groups.shape[1]} answers",
            "a number that is not finite",
            "finite numbers",
            "a baseline that compares answers needs groups of at least 2",
        )
    return mean, float(weights @ spread)


def _gradients(
    problem: _Problem, estimator: TokenEstimator, groups: Int[Tensor, "M G"], kl_coef: float
) -> Float[Tensor, "M P"]:
    """The gradient of each group's objective: one backward pass gives the weight of every token."""
    drawn, reference = problem.every[groups], problem.reference
    log_probs = drawn.log_probs(problem.policy).requires_grad_()
    batch = AnswerGroups(
        log_probs=log_probs,
        behaviour_log_probs=drawn.log_probs(problem.behaviour),
        reference_log_probs=None if reference is None else drawn.log_probs(reference),
        rewards=problem.rewards[groups],
        mask=drawn.mask.to(log_probs),
    )
    with torch.enable_grad():
        (weights,) = torch.autograd.grad(estimator(batch, kl_coef).sum(), log_probs)
    return torch.einsum("mgt,mgtp->mp", weights, problem.scores[groups])


def _groups(
    problem: _Problem, size: int, limit: int
) -> tuple[Int[Tensor, "M G"], Float[Tensor, " M"]]:
    """Every multiset of answers that the behaviour may draw, and its probability."""
    if size < 1:
        raise InvalidValueError(
            "`group_sizes`", str(size), "at least 1", "pass the number of answers per prompt"
        )
    log_prob = problem.every.log_probs(problem.behaviour).sum(-1)
    possible = (log_prob > -math.inf).nonzero().squeeze(1)
    count = math.comb(len(possible) + size - 1, size)
    check_limit(count, "groups", limit, "use fewer answers or smaller groups, or raise `limit`")
    chosen = torch.combinations(possible, size, with_replacement=True)
    log_orders = math.lgamma(size + 1) - _log_factorials_of_repeats(chosen)
    return chosen, (log_prob[chosen].sum(-1) + log_orders).exp()


def _log_factorials_of_repeats(groups: Int[Tensor, "M G"]) -> Float[Tensor, " M"]:
    """``Σ log n!`` over the answers of each group, n the times that it was drawn; groups sorted."""
    repeats = torch.ones(len(groups), dtype=torch.float64)
    total = torch.zeros_like(repeats)
    for g in range(1, groups.shape[1]):
        same = groups[:, g] == groups[:, g - 1]
        repeats = torch.where(same, repeats + 1, 1.0)
        total = total + repeats.log()  # n! = 1 · 2 ⋯ n, one factor for each further repeat
    return total


def _scores(policy: Logits, every: Answers, wrt: Tensor | None) -> Float[Tensor, "S T P"]:
    """``∂ log π(y_t | y_<t)/∂θ`` of each token of each answer; 0 in the padding."""
    log_policy = policy.log_softmax(-1)
    states, vocabulary = policy.shape
    if wrt is None:  # y − π in the row of the state, 0 in the others
        own = torch.eye(vocabulary, dtype=policy.dtype) - log_policy.detach().exp()[:, None, :]
        table = torch.einsum("sav,sz->sazv", own, torch.eye(states, dtype=policy.dtype))
    else:
        entries = log_policy.flatten()
        rows = [torch.autograd.grad(entry, wrt, retain_graph=True)[0] for entry in entries]
        table = torch.stack(rows)
    table = table.reshape(states, vocabulary, -1).detach()
    return table[every.states, every.tokens] * every.mask[..., None]


def _truth(
    language: Law,
    rewards: Float[Tensor, " S"],
    reference: Logits | None,
    kl_coef: float,
    scores: Float[Tensor, "S T P"],
) -> Float[Tensor, " P"]:
    """``∇(E[R] − β KL) = Σ_y π(y) (R − β log π/π_ref) ∇log π(y)``, because E[∇ log π] = 0."""
    value = rewards
    if reference is not None and kl_coef:
        log_probs = language.log_probs.detach()
        value = value - kl_coef * (log_probs - language.values.log_probs(reference).sum(-1))
    truth = (language.probs.detach() * value) @ scores.sum(1)
    if float(truth.norm()) <= 1e-12 * float(value.abs().max() + 1):
        raise InvalidValueError(
            "the gradient to compare with",
            "0",
            "a direction",
            "pass rewards that differ between answers, or a reference other than the policy",
        )
    return truth


def _rewards(reward: Reward, language: Law) -> Float[Tensor, " S"]:
    given: Any = reward(language.values) if callable(reward) else reward
    if not isinstance(given, Tensor) or given.shape != (len(language),):
        got = f"shape {list(given.shape)}" if isinstance(given, Tensor) else type(given).__name__
        raise ShapeError(
            "`reward`", got, f"[{len(language)}]", "return a tensor with one number for each answer"
        )
    return given.detach().to(language.log_probs)


def _check_divergence(
    estimators: Sequence[TokenEstimator], reference: Logits | None, kl_coef: float
) -> None:
    named = next((e.name for e in estimators if e.needs_reference), None)
    if reference is None:
        wanted_by = f"{named!r}" if named else f"β = {kl_coef:g}"
        raise InvalidValueError(
            "`reference`", "None", f"the logits that {wanted_by} needs", "pass π_ref's logits"
        )
    if not kl_coef > 0:
        raise InvalidValueError(
            "`kl_coef`", f"{kl_coef:g}", f"more than 0, because {named!r} has a KL", "pass β"
        )
