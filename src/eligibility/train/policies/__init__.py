"""From the network's outputs to actions and back: one policy an action space, in closed form.

==================  ====================================  =====================================
action space        policy                                outputs of the network
==================  ====================================  =====================================
``Discrete``        `CategoricalPolicy`                   K logits
``MultiDiscrete``   `MultiCategoricalPolicy`              the logits of each index
``MultiBinary``     `BernoulliPolicy`: Williams' units    one log-odds a bit
``Box``             `GaussianPolicy`, learned ln σ        the means; ln σ are weights of their own
==================  ====================================  =====================================
"""

from eligibility.train.policies.bernoulli import BernoulliPolicy
from eligibility.train.policies.categorical import CategoricalPolicy, MultiCategoricalPolicy
from eligibility.train.policies.gaussian import GaussianPolicy
from eligibility.train.policies.policy import Policy
from eligibility.train.policies.spaces import policy_for

__all__ = [
    "BernoulliPolicy",
    "CategoricalPolicy",
    "GaussianPolicy",
    "MultiCategoricalPolicy",
    "Policy",
    "policy_for",
]
