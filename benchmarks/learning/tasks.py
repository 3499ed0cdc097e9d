"""The environments, what counts as solved there, and the settings of Stable-Baselines3.

The settings are those of DLR-RM/rl-baselines3-zoo, ``hyperparams/a2c.yml`` and ``ppo.yml``; where
the zoo has none, those that it applies to unlisted environments: Stable-Baselines3's own. An entry
of an older version of the environment is used for the newer one, and said so.
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


@dataclass(frozen=True)
class Task:
    """One environment.

    Attributes:
        env: Its id.
        threshold: Solved when the mean of the last 100 training episodes reaches it; None: there
            is no such return, and training lasts until a limit.
        meaning: Where the threshold is from.
        steps: No run takes more steps.
        seconds: Nor more seconds of processor time.
        peers: What Stable-Baselines3 is run with; none where it cannot take the environment.
        note: What a reader must know.
        by_hand: It takes so long that it is trained apart, and its run folder taken.
    """

    env: str
    threshold: float | None
    meaning: str
    steps: int
    seconds: float
    peers: dict[str, Settings]
    note: str = ""
    by_hand: bool = False

    @property
    def file(self) -> str:
        """The id as the name of a file."""
        return self.env.replace("/", "-")


# The zoo's networks of MuJoCo, without torch in this table.
_WIDE = {"log_std_init": -2, "ortho_init": False, "activation_fn": "ReLU", "net_arch": [256, 256]}
_UNLISTED = "not in rl-zoo: Stable-Baselines3's defaults"
_MINIGRID = Settings(
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


def _unlisted(wrapper: str | None = None) -> dict[str, Settings]:
    settings = Settings(wrapper=wrapper, source=_UNLISTED)
    return {"A2C": settings, "PPO": settings}


def _minigrid(env: str, threshold: float, meaning: str, seconds: float, note: str = "") -> Task:
    a2c = Settings(wrapper=_MINIGRID.wrapper, source=_UNLISTED)
    return Task(env, threshold, meaning, 500_000, seconds, {"A2C": a2c, "PPO": _MINIGRID}, note)


_TABLE = (
    Task(
        "CartPole-v1",
        475,
        "Gymnasium's",
        1_000_000,
        120,
        {
            "A2C": Settings({"ent_coef": 0.0}, n_envs=8, n_timesteps=500_000),
            "PPO": Settings(
                {
                    "n_steps": 32,
                    "batch_size": 256,
                    "gae_lambda": 0.8,
                    "gamma": 0.98,
                    "n_epochs": 20,
                    "ent_coef": 0.0,
                    "learning_rate": "lin_0.001",
                    "clip_range": "lin_0.2",
                },
                n_envs=8,
                n_timesteps=100_000,
            ),
        },
    ),
    Task(
        "Acrobot-v1",
        -100,
        "Gymnasium's",
        1_000_000,
        120,
        {
            "A2C": Settings({"ent_coef": 0.0}, n_envs=16, n_timesteps=500_000, normalize=True),
            "PPO": Settings(
                {
                    "n_steps": 256,
                    "gae_lambda": 0.94,
                    "gamma": 0.99,
                    "n_epochs": 4,
                    "ent_coef": 0.0,
                },
                n_envs=16,
                normalize=True,
            ),
        },
    ),
    Task(
        "LunarLander-v3",
        200,
        "Gymnasium's",
        3_000_000,
        300,
        {
            "A2C": Settings(
                {
                    "gamma": 0.995,
                    "n_steps": 5,
                    "learning_rate": "lin_0.00083",
                    "ent_coef": 0.00001,
                },
                n_envs=8,
                n_timesteps=200_000,
            ),
            "PPO": Settings(
                {
                    "n_steps": 1024,
                    "batch_size": 64,
                    "gae_lambda": 0.98,
                    "gamma": 0.999,
                    "n_epochs": 4,
                    "ent_coef": 0.01,
                },
                n_envs=16,
            ),
        },
    ),
    Task(
        "FrozenLake-v1",
        0.7,
        "Gymnasium's; the best policy reaches 0.74",
        400_000,
        60,
        _unlisted(),
    ),
    Task(
        "Taxi-v4",
        7,
        "ours: the best policy reaches 7.93, and Gymnasium's 8 is above that",
        3_000_000,
        180,
        _unlisted(),
    ),
    Task(
        "Blackjack-v1",
        None,
        "a hundred hands say little: see greedy",
        200_000,
        60,
        _unlisted("gymnasium.wrappers:FlattenObservation"),
        "Greedy is exact here, by dynamic programming; the best policy has -0.0431.",
    ),
    Task(
        "InvertedPendulum-v5",
        950,
        "Gymnasium's",
        1_000_000,
        180,
        {
            "A2C": Settings(source=_UNLISTED),
            "PPO": Settings(
                {
                    "batch_size": 64,
                    "n_steps": 32,
                    "gamma": 0.999,
                    "learning_rate": 0.000222425,
                    "ent_coef": 1.37976e-07,
                    "clip_range": 0.4,
                    "n_epochs": 5,
                    "gae_lambda": 0.9,
                    "max_grad_norm": 0.3,
                    "vf_coef": 0.19816,
                },
                normalize=True,
                source="rl-zoo, InvertedPendulum-v2",
            ),
        },
    ),
    Task(
        "HalfCheetah-v5",
        None,
        "as far as it goes: 1,000,000 steps",
        1_000_000,
        600,
        {
            "A2C": Settings(normalize=True, source="rl-zoo, HalfCheetah-v4"),
            "PPO": Settings(
                {
                    "batch_size": 64,
                    "n_steps": 512,
                    "gamma": 0.98,
                    "learning_rate": 2.0633e-05,
                    "ent_coef": 0.000401762,
                    "clip_range": 0.1,
                    "n_epochs": 20,
                    "gae_lambda": 0.92,
                    "max_grad_norm": 0.8,
                    "vf_coef": 0.58096,
                    "policy_kwargs": _WIDE,
                },
                normalize=True,
                source="rl-zoo, HalfCheetah-v4",
            ),
        },
    ),
    Task(
        "eligibility/Allocation-v0",
        18.5,
        "ours: the best multinomial reaches about 19.2",
        500_000,
        60,
        {},
        "Stable-Baselines3 has no policy for counts.",
    ),
    _minigrid("MiniGrid-Empty-5x5-v0", 0.9, "ours: the shortest way pays 0.955", 90),
    _minigrid("MiniGrid-Empty-8x8-v0", 0.9, "ours: the shortest way pays 0.961", 180),
    _minigrid("MiniGrid-DoorKey-5x5-v0", 0.9, "ours: short ways pay about 0.96", 240),
    Task(
        "eligibility/Pong-v0",
        None,
        "Karpathy's run took three nights and about 8,000 games to be even with the opponent, 0",
        50_000_000,
        1e6,
        {},
        "Ours goes on by `eligibility train --resume`; so far there are too few games to see "
        "anything. Seconds are on the wall of a busy machine, at the lowest priority.",
        by_hand=True,
    ),
)
TASKS = {task.env: task for task in _TABLE}
