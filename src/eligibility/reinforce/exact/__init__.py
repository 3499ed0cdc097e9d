"""The ground truth for estimators: expectations by enumeration, not by sampling.

A `Law` is a finite list of outcomes with their log-probabilities, differentiable in the policy's
parameters. It comes from a distribution (`law`: finite supports by enumeration, scalar continuous
laws by quadrature), from a finite-horizon `TabularMDP` (every trajectory), or from the user.
Whatever takes a policy takes any of the three.

============================  ==================================================================
`expectation`, `gradient`     ``E[f(y)]`` and ``∂E[r(y)]/∂θ``, by differentiating the sum itself
`eligibilities`               ``∂ log p(y)/∂θ`` of every outcome
`moments`                     mean and covariance of *any* estimator of a batch of N independent
                              outcomes, over all Sᴺ batches: a bias is a number, not a p-value
`variance`, `covariance`      the same, one at a time
`leave_one_out_variance`      the variance of REINFORCE leave-one-out for any N, without batches
`language`, `compare`         tiny languages, and the estimators of language-model training
============================  ==================================================================

Use float64 parameters: results are as exact as the dtype. What would take more than ``limit``
outcomes or batches is predicted and refused before it is tried.
"""

from eligibility.reinforce.exact import language
from eligibility.reinforce.exact.estimators import (
    Moments,
    covariance,
    eligibilities,
    expectation,
    gradient,
    leave_one_out_variance,
    moments,
    variance,
)
from eligibility.reinforce.exact.language import compare
from eligibility.reinforce.exact.law import Law, law
from eligibility.reinforce.exact.mdp import TabularMDP, Trajectories

__all__ = [
    "Law",
    "Moments",
    "TabularMDP",
    "Trajectories",
    "compare",
    "covariance",
    "eligibilities",
    "expectation",
    "gradient",
    "language",
    "law",
    "leave_one_out_variance",
    "moments",
    "variance",
]
