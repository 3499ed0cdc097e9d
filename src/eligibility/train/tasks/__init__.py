"""Environments that come with the package; `register` makes Gymnasium know them."""

from __future__ import annotations

from typing import Any

TASKS: dict[str, dict[str, Any]] = {
    "eligibility/Pong-v0": {"entry_point": "eligibility.train.tasks.pong:Pong"},
    "eligibility/Allocation-v0": {
        "entry_point": "eligibility.train.tasks.allocation:Allocation",
        "max_episode_steps": 20,
        "reward_threshold": 19.0,  # 95 % of the optimum, by actions that are drawn
    },
}


def register() -> None:
    """Register with Gymnasium what is not registered yet."""
    import gymnasium

    for name, registration in TASKS.items():
        if name not in gymnasium.registry:
            gymnasium.register(name, **registration)
