"""From the network's outputs to actions and back: one policy an action space, in closed form.

====================  ====================================  ======================================
action space          policy                                outputs of the network
====================  ====================================  ======================================
``Discrete``          `CategoricalPolicy`                   K logits
``MultiDiscrete``     `MultiCategoricalPolicy`              the logits of each index
``MultiBinary``       `BernoulliPolicy`: Williams' units    one log-odds a bit
``Counts``            `MultinomialPolicy`                   K logits
``Box``               `GaussianPolicy`, learned ln σ        the means; ln σ are weights of their own
``Box``, squashed     `SquashedGaussianPolicy`              the same
``Tuple``, ``Dict``   `CompositePolicy` of these            those of the parts
====================  ====================================  ======================================
"""

from eligibility.train.policies.discrete import CategoricalPolicy, MultiCategoricalPolicy
from eligibility.train.policies.gaussian import GaussianPolicy, SquashedGaussianPolicy
from eligibility.train.policies.parts import CompositePolicy, policy_for
from eligibility.train.policies.policy import Policy
from eligibility.train.policies.units import BernoulliPolicy, MultinomialPolicy

__all__ = [
    "BernoulliPolicy",
    "CategoricalPolicy",
    "CompositePolicy",
    "GaussianPolicy",
    "MultiCategoricalPolicy",
    "MultinomialPolicy",
    "Policy",
    "SquashedGaussianPolicy",
    "policy_for",
]
