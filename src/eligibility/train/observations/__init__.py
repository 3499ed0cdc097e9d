"""From an environment's observations to numbers for a network: one encoding a kind of space.

=====================  ==========================  ===============================================
observation space      kept in a rollout as        what the network sees
=====================  ==========================  ===============================================
``Box``                float32, or int8 or uint8   the numbers; uint8 divided by 255
                       if it is
``Box`` of an image    the same                    the same, through convolutional layers
``Discrete``           int64                       a one-hot vector
``MultiDiscrete``      int64                       the one-hot vectors of its indices
``MultiBinary``        int8                        the bits
``Dict``, ``Tuple``    the parts side by side      the parts side by side
=====================  ==========================  ===============================================
"""

from eligibility.train.observations import kinds
from eligibility.train.observations.composite import observations_for
from eligibility.train.observations.observations import Image, Observations

__all__ = ["Image", "Observations", "kinds", "observations_for"]
