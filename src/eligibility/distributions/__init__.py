"""Drop-in subclasses of torch's discrete distributions: exact, strict, masked.

They are instances of torch's classes and behave like them, except where torch is wrong or silent:
nothing is clamped, shapes are never broadcast silently, weights are kept as they were given, and
the mistakes of a user are errors that say what to do.
"""

from eligibility.distributions import divergences
from eligibility.distributions.bernoulli import Bernoulli
from eligibility.distributions.binomial import Binomial
from eligibility.distributions.masked_categorical import Categorical
from eligibility.distributions.multinomial import Multinomial
from eligibility.distributions.one_hot_categorical import OneHotCategorical

__all__ = [
    "Bernoulli",
    "Binomial",
    "Categorical",
    "Multinomial",
    "OneHotCategorical",
    "divergences",
]
