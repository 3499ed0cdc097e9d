"""Options that suit an environment better than the defaults, and who steps it in less time.

The user's own options come first. docs/learning shows what each of them reaches.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any

# What is seen of a grid is codes of things, colours and states; its size is small. The mission is
# the same in all episodes, and the direction can be seen. Episodes differ in where things are: a
# value of the state knows that, and the mean of the others does not.
_GRID: dict[str, Any] = {
    "environments": 32,
    "observation_keys": ("image",),
    "convolution": False,
    "normalize_observations": True,
    "natural_gradient": 0.03,
    "baseline": "state-value",
    "gae_lambda": 0.95,
}

# Noise that is as wide as the whole range must shrink first: by the natural gradient it does; a
# critic's worth of foresight, and a small network on observations of one scale.
_CONTROL: dict[str, Any] = {
    "environments": 16,
    "hidden_sizes": (32,),
    "natural_gradient": 0.03,
    "baseline": "state-value",
    "gae_lambda": 0.95,
    "normalize_observations": True,
}

# Few episodes an update, since each is a thousand steps. Force costs reward: begin with little.
_GAIT: dict[str, Any] = {
    **_CONTROL,
    "environments": 8,
    "natural_gradient": 0.06,
    "gae_lambda": 0.97,
}

PRESETS: dict[str, dict[str, Any]] = {
    # One good direction, and a small network that can take it in large steps; as many episodes in
    # an update as decide whether it is solved.
    "CartPole-v1": {
        "environments": 100,
        "hidden_sizes": (64,),
        "learning_rate": 0.06,  # faster from 0.08, where some policies then fail played greedily
        "scale_observations": True,
    },
    # The first successes are rare: keep trying. The first episodes are long: few in an update.
    "Acrobot-v1": {"environments": 16, "learning_rate": 0.03, "entropy_coef": 0.01},
    # What moves the demand is not the action: each step is a separate task.
    "eligibility/Allocation-v0": {"learning_rate": 0.02, "discount": 0.0},
    # Small policies that move by a given divergence need a third of the steps that Adam does.
    "LunarLander-v3": {"environments": 32, "hidden_sizes": (32,), "natural_gradient": 0.03},
    # A scale of observations that moves makes it hover; these have one scale as they are.
    "LunarLanderContinuous-v3": {
        **_CONTROL,
        "environments": 32,
        "gae_lambda": 0.97,
        "normalize_observations": False,
    },
    # A table of logits. Success is rare and partly luck: many episodes.
    "FrozenLake-v1": {
        "environments": 512,
        "hidden_sizes": (),
        "natural_gradient": 0.05,
        "entropy_coef": 0.01,
        "baseline": "leave-one-out",
    },
    # A table of logits; what the info forbids is masked. States differ far more in what they pay
    # than actions do: without a value of its own, a rare state keeps a loop as its best action.
    "Taxi-v4": {
        "hidden_sizes": (),
        "natural_gradient": 0.03,
        "discount": 0.95,
        "baseline": "state-value",
        "gae_lambda": 0.9,
    },
    "Blackjack-v1": {
        "environments": 512,
        "hidden_sizes": (32,),
        "natural_gradient": 0.01,
        "steps": 200_000,
    },
    # Nothing is paid before the first success: long steps of a constant length find it, and a value
    # that does not know the time says where to look. A policy that is certain too early does not.
    "MountainCar-v0": {
        **_CONTROL,
        "natural_gradient": 0.1,
        "gae_lambda": 0.97,
        "value_knows_time": False,
        "entropy_coef": 0.02,
    },
    # A reward at every step tells signal from noise.
    "Pendulum-v1": {**_CONTROL, "shorten_noisy_steps": True},
    # The pole falls at once under noise as wide as the whole range.
    "InvertedPendulum-v5": {**_CONTROL, "initial_deviation": 0.3, "line_search": True},
    "Hopper-v5": {**_CONTROL, "gae_lambda": 0.97},
    "HalfCheetah-v5": {**_GAIT, "initial_deviation": 0.3},
    "BipedalWalker-v3": {**_GAIT, "initial_deviation": 0.5},
    "MiniGrid-Empty-5x5-v0": {**_GRID, "max_episode_steps": 100},
    "MiniGrid-Empty-8x8-v0": {**_GRID, "max_episode_steps": 256},
    "MiniGrid-DoorKey-5x5-v0": {**_GRID, "max_episode_steps": 250},
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


def preset(env: str) -> dict[str, Any]:
    """The options of an environment's preset; ``envpool:`` or ``gymnasium:`` before it is none."""
    return PRESETS.get(env.removeprefix("envpool:").removeprefix("gymnasium:"), {})


# How many times as fast a rollout is, policy and all, by `python -m benchmarks.pools`; only those
# that are twice as fast, have the spaces and limits of Gymnasium's, and are learned as well.
FACTORS = {
    "Acrobot-v1": 8.0,
    "Pendulum-v1": 2.0,
    "MiniGrid-Empty-5x5-v0": 7.6,
    "MiniGrid-Empty-8x8-v0": 8.1,
    "MiniGrid-DoorKey-5x5-v0": 9.6,
}
# The first version that all of these were tried with.
_OLDEST = (1, 2)


def quicker(env: str) -> str | None:
    """The id of the same environment in EnvPool, if that is installed and quicker; else None."""
    try:
        installed = tuple(map(int, version("envpool").split(".")[:2]))
    except (PackageNotFoundError, ValueError):  # none, or a version of somebody's own
        return None
    return f"envpool:{env}" if env in FACTORS and installed >= _OLDEST else None
