"""The Concrete laws, relaxations of a coin and of a one-hot vector, and the same in logarithms.

A value y enters through v, its log-odds or its logarithms; the laws that torch builds the relaxed
ones from have v as their value. The temperature τ is held fixed: torch does not declare it as a
parameter either.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.distributions import Distribution, RelaxedBernoulli, RelaxedOneHotCategorical
from torch.distributions.relaxed_bernoulli import LogitRelaxedBernoulli
from torch.distributions.relaxed_categorical import ExpRelaxedCategorical

from eligibility.rules.multinomial import exponentiate, sum_of_others
from eligibility.rules.registry import register_eligibility
from eligibility.rules.special import logit

Elementwise = Callable[[Tensor], Tensor]
Score = Callable[[Tensor, Tensor, Tensor], Tensor]

_REFERENCE = "derived from the densities of Maddison, Mnih & Teh 2017"


def coin_logits(v: Tensor, temperature: Tensor, logits: Tensor) -> Tensor:
    """``1 − 2σ(l − τv) = −tanh((l − τv)/2)``.

    Example:
        >>> coin_logits(torch.tensor(0.0), torch.tensor(0.5), torch.tensor(0.0))
        tensor(-0.)
    """
    return -torch.tanh((logits - temperature * v) / 2)


def categories_logits(v: Tensor, temperature: Tensor, weights: Tensor) -> Tensor:
    """``1 − K softmax(z − τv)`` with weights e^z, given the logarithms v of an outcome.

    An entry of −∞ takes the whole share, as in the limit.
    """
    scores = weights.log() - temperature * v
    return _score(exponentiate(scores.clamp(max=torch.finfo(v.dtype).max)))


def simplex_logits(y: Tensor, temperature: Tensor, weights: Tensor) -> Tensor:
    """The same given the outcome y: weights times powers, whose relative errors are small.

    Where all the products underflow, by logarithms. An entry of 0 takes the whole share.
    """
    powers = (y.amin(-1, keepdim=True) / y).nan_to_num(1.0) ** temperature
    products = weights * powers
    faint = products.amax(-1, keepdim=True) < torch.finfo(y.dtype).tiny ** 0.75
    by_logarithm = categories_logits(y.log(), temperature, weights)
    return torch.where(faint, by_logarithm, _score(products))


def _score(weights: Tensor) -> Tensor:
    """``1 − Kπ``, as the share of the others less K − 1 times the own one."""
    total = weights.sum(-1, keepdim=True)
    return sum_of_others(weights) / total - (weights.shape[-1] - 1) * (weights / total)


def _register_coin(cls: type[Distribution], v: str, v_of: Elementwise) -> None:
    """The rules of a relaxed coin, for the parameterisation that it was constructed with."""
    score = f"1 − 2σ(l − τ {v})"

    def by_logits(value: Tensor, temperature: Tensor, logits: Tensor) -> Tensor:
        return coin_logits(v_of(value), temperature, logits)

    def odds(logits: Tensor) -> Tensor:
        return (1 + torch.exp(logits)) * (1 + torch.exp(-logits))

    register = partial(_register, cls, "relaxed coin")
    register("logits", "log-odds", score, "l", by_logits)
    register(
        "logits", "log-odds from the probability", f"{score}, l = logit p", "p",
        lambda y, t, probs: by_logits(y, t, logit(probs)),
    )  # fmt: skip
    register(
        "probs", "probability", f"({score})/(p (1 − p)), l = logit p", "p",
        lambda y, t, probs: by_logits(y, t, logit(probs)) / probs / (1 - probs),
    )  # fmt: skip
    register(
        "probs", "probability from the log-odds", f"({score})/(p (1 − p)), p = σ(l)", "l",
        lambda y, t, logits: by_logits(y, t, logits) * odds(logits),
    )  # fmt: skip


def _register_categories(cls: type[Distribution], v: str, score_of: Score) -> None:
    """The rules of a relaxed one-hot vector. Weights: the density does not depend on their sum."""
    score = f"1 − K softmax(z − τ {v})"

    def by_weights_of_logits(y: Tensor, t: Tensor, logits: Tensor) -> Tensor:
        weights = exponentiate(logits)
        return score_of(y, t, weights) / weights * weights.sum(-1, keepdim=True)

    register = partial(_register, cls, "relaxed one-hot")
    register("logits", "logits", score, "z", lambda y, t, z: score_of(y, t, exponentiate(z)))
    register("logits", "logits from the weights", f"{score}, z = ln w", "w", score_of)
    register(
        "probs", "unnormalised weights", f"({score})/w, z = ln w", "w",
        lambda y, t, weights: score_of(y, t, weights) / weights,
    )  # fmt: skip
    register(
        "probs", "weights from the logits", f"({score})/w, w = softmax(z)", "z",
        by_weights_of_logits,
    )  # fmt: skip


def _register(
    cls: type[Distribution], family: str, parameter: str, name: str, equation: str, given: str,
    function: Score,
) -> None:  # fmt: skip
    """A rule of (value, temperature, what ``given`` stands for)."""
    read = "logits" if given in "lz" else "probs"
    register_eligibility(
        cls,
        parameter,
        name=f"{family}, {name}",
        equation=equation,
        reference=_REFERENCE,
        symbols={"y": "value", "τ": "temperature", given: read},
        reads=("temperature", read),
    )(function)


_register_coin(RelaxedBernoulli, "logit y", logit)
_register_coin(LogitRelaxedBernoulli, "y", lambda value: value)
_register_categories(RelaxedOneHotCategorical, "ln y", simplex_logits)
_register_categories(ExpRelaxedCategorical, "y", categories_logits)
