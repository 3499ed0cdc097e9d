"""From an environment's observations to numbers for a network: one encoding for a kind of space.

docs/train/spaces.md has a table of them.
"""

from eligibility.train.observations import kinds
from eligibility.train.observations.composite import observations_for
from eligibility.train.observations.observations import Image, Observations

__all__ = ["Image", "Observations", "kinds", "observations_for"]
