"""The settings of Stable-Baselines3: those of DLR-RM/rl-baselines3-zoo.

They are in its ``hyperparams/a2c.yml`` and ``ppo.yml``; where it has none, those that it applies to
unlisted environments: Stable-Baselines3's own. An entry of an older version of the environment is
used for the newer one, and said so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

ZOO_COMMIT = "22e3ff2450fd92033f7f032915e1f64894a09584"


@dataclass(frozen=True)
class Settings:
    """One algorithm of Stable-Baselines3 on one environment.

    Attributes:
        options: Keywords of the algorithm; ``lin_x`` is a rate that falls from x to 0.
        n_envs: Environments side by side.
        n_timesteps: The length of training, over which rates fall.
        normalize: Whether `VecNormalize` scales observations and rewards.
        wrapper: A wrapper around each environment, as ``module:Class``.
        source: Where the settings are from.
    """

    options: dict[str, Any] = field(default_factory=dict)
    n_envs: int = 1
    n_timesteps: int = 1_000_000
    normalize: bool = False
    wrapper: str | None = None
    source: str = "rl-zoo"


# The zoo's networks of MuJoCo, without torch in this table.
WIDE = {"log_std_init": -2, "ortho_init": False, "activation_fn": "ReLU", "net_arch": [256, 256]}
NOISE = {
    "ent_coef": 0.0,
    "max_grad_norm": 0.5,
    "n_steps": 8,
    "gae_lambda": 0.9,
    "vf_coef": 0.4,
    "gamma": 0.99,
    "use_rms_prop": True,
    "normalize_advantage": False,
    "use_sde": True,
    "policy_kwargs": {"log_std_init": -2, "ortho_init": False},
}
LANDER = Settings(
    {
        "n_steps": 1024,
        "batch_size": 64,
        "gae_lambda": 0.98,
        "gamma": 0.999,
        "n_epochs": 4,
        "ent_coef": 0.01,
    },
    n_envs=16,
)
UNLISTED = "not in rl-zoo: Stable-Baselines3's defaults"
MINIGRID = Settings(
    {
        "n_steps": 128,
        "batch_size": 64,
        "gae_lambda": 0.95,
        "gamma": 0.99,
        "n_epochs": 10,
        "ent_coef": 0.0,
        "learning_rate": 2.5e-4,
        "clip_range": 0.2,
    },
    n_envs=8,
    n_timesteps=100_000,
    normalize=True,
    wrapper="minigrid.wrappers:FlatObsWrapper",
    source="rl-zoo, MiniGrid-DoorKey-5x5-v0",
)
