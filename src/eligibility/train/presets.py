"""Options that suit an environment better than the defaults. The user's own options come first."""

from __future__ import annotations

from typing import Any

PRESETS: dict[str, dict[str, Any]] = {
    # One good direction, and a small network that can take it in large steps; as many episodes in
    # an update as decide whether it is solved.
    "CartPole-v1": {
        "environments": 100,
        "hidden_sizes": (64,),
        "learning_rate": 0.1,
        "scale_observations": True,
    },
    # The first successes are rare: keep trying. Each episode is long and costs real time.
    "Acrobot-v1": {"environments": 32, "entropy_coef": 0.01},
    # What moves the demand is not the action: each step is a task of its own.
    "eligibility/Allocation-v0": {"learning_rate": 0.02, "discount": 0.0},
    # Karpathy's network and batches. A point does not depend on those before it.
    "eligibility/Pong-v0": {
        "environments": 10,
        "steps": 50_000_000,
        "max_episode_steps": 27_000,
        "credit": "next-reward",
        "baseline": "leave-one-out",
        "hidden_sizes": (200,),
        "activation": "relu",
        "learning_rate": 1e-3,
    },
}
