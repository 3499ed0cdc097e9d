"""Tiny languages, enumerated: what the estimators of language-model training estimate, exactly.

A language of V tokens with answers of at most T has few answers, and a group of G of them few
outcomes. So the mean and the variance of what a trainer computes are finite sums.

============================  ==================================================================
`answers`                     every answer of a policy, as a `Law`
`answer_kl`, `state_kl`       the divergences that the KL estimators have as gradients
`TokenEstimator`              a correction, a baseline, a divisor, a divergence: one trainer's
`CORRECTIONS`, `BASELINES`,   those that people choose between
`KL_ESTIMATORS`
`objectives`                  their parts, written as in the papers
`el.exact.compare`            bias, variance and error of each, over drift and group size
============================  ==================================================================
"""

from eligibility.reinforce.exact.language import objectives
from eligibility.reinforce.exact.language.answers import (
    Answers,
    answer_kl,
    answers,
    state_kl,
    state_visits,
)
from eligibility.reinforce.exact.language.comparison import Comparison, EstimatorError, compare
from eligibility.reinforce.exact.language.estimators import (
    BASELINES,
    CORRECTIONS,
    KL_ESTIMATORS,
    TokenEstimator,
)
from eligibility.reinforce.exact.language.objectives import AnswerGroups

__all__ = [
    "BASELINES",
    "CORRECTIONS",
    "KL_ESTIMATORS",
    "AnswerGroups",
    "Answers",
    "Comparison",
    "EstimatorError",
    "TokenEstimator",
    "answer_kl",
    "answers",
    "compare",
    "objectives",
    "state_kl",
    "state_visits",
]
