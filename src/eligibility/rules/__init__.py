"""The mathematics: pure tensor functions, one file per family, and the registry that finds them.

Importing this package registers every rule.
"""

from eligibility.rules import bernoulli, binomial, categorical, fisher, multinomial

__all__ = ["bernoulli", "binomial", "categorical", "fisher", "multinomial"]
