"""Environments that come with the package; `register` makes Gymnasium know them."""

from __future__ import annotations

TASKS = {"eligibility/Pong-v0": "eligibility.train.tasks.pong:Pong"}


def register() -> None:
    """Register with Gymnasium what is not registered yet."""
    import gymnasium

    for name, entry_point in TASKS.items():
        if name not in gymnasium.registry:
            gymnasium.register(name, entry_point=entry_point)
