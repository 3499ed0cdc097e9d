"""``Counts``: n units shared out over K bins by the same probabilities; ``MultiBinary``: bits."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

from eligibility.ops.backends import plain
from eligibility.rules import bernoulli, multinomial
from eligibility.spaces import Bits, Units
from eligibility.train.policies.policy import Policy, policy_of


class MultinomialPolicy(Policy):
    """n draws from one softmax, of which only the counts are told; the outputs are K logits.

    References:
        Williams 1992, §4, extended: the paper has no multinomial unit. The mode: Finucan 1964,
        Biometrika 51:513-517, whose bounds are where the search begins.
    """

    action_dtype = torch.int64
    noise_dtype = torch.float64

    def __init__(self, total: int, bins: int) -> None:
        self.kind, self.total, self.size = Units(total, bins), total, bins
        self.noise_shape, self.action_shape = (total,), (bins,)
        units = torch.arange(total + 1, dtype=torch.float64)
        log_factorial = torch.lgamma(units + 1)
        self._log_factorial = log_factorial[total]
        # ln of the binomial coefficients of n − 1 and of n, and what is averaged with them.
        self._fewer = log_factorial[total - 1] - log_factorial[:-1] - log_factorial[:-1].flip(0)
        self._choices = log_factorial[total] - log_factorial - log_factorial.flip(0)
        self._logs, self._log_factorials = (units[:-1] + 1).log(), log_factorial
        self.largest_entropy = float(self.entropy(torch.zeros(1, bins))[0])

    def fill_noise(self, noise: Tensor, generator: torch.Generator) -> None:
        """Uniform numbers, one a unit."""
        noise.uniform_(generator=generator)

    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        """The counts of the bins in which n uniform numbers fall: inversion, in float64."""
        sums = multinomial.exponentiate(outputs.double()).cumsum(-1)
        total = sums[..., -1:]
        below = torch.nextafter(total, torch.zeros_like(total))  # a bin without weight stays empty
        bins = torch.searchsorted(sums, torch.minimum(noise * total, below), right=True)
        counts = torch.zeros(sums.shape, dtype=self.action_dtype)
        return counts.scatter_add_(-1, bins, torch.ones_like(bins))

    def mode(self, outputs: Tensor) -> Tensor:
        """The most probable counts: the units one by one, each where it gains most.

        Putting one more unit into bin k multiplies the probability by π_k / (y_k + 1) up to what
        is the same for all bins, so the best next bin is the best for good. ⌊n π_k⌋ units are in
        bin k in any case.
        """
        probs = torch.softmax(outputs.double(), -1)
        counts = (self.total * probs - 1e-9).floor().clamp_(min=0)
        missing = self.total - counts.sum(-1)
        while (missing > 0).any():
            best = (probs / (counts + 1)).argmax(-1, keepdim=True)
            counts.scatter_add_(-1, best, (missing > 0).to(counts).unsqueeze(-1))
            missing -= 1
        return counts.to(self.action_dtype)

    def eligibility(self, outputs: Tensor, action: Tensor) -> Tensor:
        """``y − n softmax(z)``."""
        return multinomial.eligibility_logits(action, outputs)

    def entropy(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        r"""``H = −ln n! − n Σ π_k ln π_k + Σ_k E[ln X_k!]`` with ``X_k ~ Bin(n, π_k)``.

        Its gradient goes through ``∂H/∂π_k = n (−ln π_k − 1 + E[ln(X + 1)])`` with
        ``X ~ Bin(n − 1, π_k)``, because ``d E f(Bin(n, π))/dπ = n E[f(X + 1) − f(X)]``.
        """
        log_probs = torch.log_softmax(outputs.double(), -1)
        probs = log_probs.exp()
        inner = torch.where(probs > 0, log_probs, 0.0)
        spread = self._mean(log_probs, self._choices, self._log_factorials)
        entropy = -self._log_factorial + (spread - self.total * probs * inner).sum(-1)
        slope = self.total * (self._mean(log_probs, self._fewer, self._logs) - inner)
        gradient = probs * (slope - (probs * slope).sum(-1, keepdim=True))
        return entropy.to(outputs.dtype), gradient.to(outputs.dtype)

    @staticmethod
    def _mean(log_probs: Tensor, log_choices: Tensor, values: Tensor) -> Tensor:
        """``E f(X)`` of a binomial X, shape of ``log_probs``, given f at 0, 1, …, n."""
        others = torch.log1p(-log_probs.exp().clamp(max=1 - 2**-53)).unsqueeze(-1)
        units = torch.arange(len(values), dtype=log_probs.dtype)
        finite = log_probs.clamp(min=-1e300).unsqueeze(-1)
        exponents = log_choices + units * finite + (len(values) - 1 - units) * others
        return exponents.exp() @ values

    def fisher(self, outputs: Tensor) -> Callable[[Tensor], Tensor]:
        """``F = n (diag(π) − π πᵀ)``."""
        probs = torch.softmax(outputs, -1)
        return lambda u: self.total * probs * (u - (probs * u).sum(-1, keepdim=True))

    def divergence(self, outputs: Tensor, other: Tensor) -> Tensor:
        """``n Σ π (log π − log π')``."""
        return self.total * plain.kl(plain.log_pmf(outputs), plain.log_pmf(other))

    def to_environment(self, action: Tensor) -> Any:
        return action.numpy()


@policy_of.register
def _(kind: Units, space: Any, squash: bool) -> Policy:
    return MultinomialPolicy(kind.total, kind.bins)


# Log-odds from which σ(−l) is 0 in every dtype.
_CERTAIN = 1e4


class BernoulliPolicy(Policy):
    """Independent bits; the outputs are their log-odds.

    References:
        Williams 1992, Machine Learning 8:229-256, eq. (7).
    """

    action_dtype = torch.int8

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.kind, self.shape = Bits(shape), shape
        self.size = int(np.prod(shape))
        self.largest_entropy = self.size * math.log(2)
        self.noise_shape = self.action_shape = (self.size,)

    def fill_noise(self, noise: Tensor, generator: torch.Generator) -> None:
        """Standard logistic noise: the log-odds of a uniform number."""
        noise.uniform_(generator=generator).logit_()

    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        """1 where ``l + noise > 0``, which has probability σ(l)."""
        return self.mode(outputs + noise)

    def mode(self, outputs: Tensor) -> Tensor:
        return (outputs > 0).to(self.action_dtype)

    def eligibility(self, outputs: Tensor, action: Tensor) -> Tensor:
        """``y − σ(l)``."""
        return bernoulli.eligibility_logits(action, outputs)

    def entropy(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """``H = Σ softplus(l) − l σ(l)`` and ``∂H/∂l = −l σ(l) σ(−l)``."""
        outputs = outputs.clamp(-_CERTAIN, _CERTAIN)  # where a bit is certain, 0 · ∞ = 0
        ones = torch.sigmoid(outputs)
        entropy = (softplus(outputs) - outputs * ones).sum(-1)
        return entropy, -outputs * ones * torch.sigmoid(-outputs)

    def fisher(self, outputs: Tensor) -> Callable[[Tensor], Tensor]:
        """``F = diag(σ(l) σ(−l))``."""
        return (torch.sigmoid(outputs) * torch.sigmoid(-outputs)).mul

    def divergence(self, outputs: Tensor, other: Tensor) -> Tensor:
        """``Σ σ(l) (l − m) − softplus(l) + softplus(m)``."""
        own, new = (z.clamp(-_CERTAIN, _CERTAIN) for z in (outputs, other))
        return (torch.sigmoid(own) * (own - new) - softplus(own) + softplus(new)).sum(-1)

    def to_environment(self, action: Tensor) -> Any:
        return action.numpy().reshape(-1, *self.shape)


@policy_of.register
def _(kind: Bits, space: Any, squash: bool) -> Policy:
    return BernoulliPolicy(kind.shape)
