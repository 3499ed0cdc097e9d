"""Whether a number that a program trains on is a cost, by what it calls it."""

from __future__ import annotations

import re

_REWARDS = re.compile("reward|score|return|gain|payoff|profit|win|won|acc", re.IGNORECASE)
_COSTS = re.compile(
    "cost|loss|error|distance|dists?$|length|penalt|regret|energy|makespan|latency", re.IGNORECASE
)


def is_a_cost(name: str) -> bool:
    """Whether a number is called a cost."""
    return bool(_COSTS.search(name)) and not _REWARDS.search(name)


def may_be_a_cost(name: str) -> bool:
    """Whether a number is not called a reward."""
    return not _REWARDS.search(name) and name not in ("r", "R", "rs", "G")
