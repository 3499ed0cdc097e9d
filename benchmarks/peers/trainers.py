"""How each peer is started, with the settings that its own project gives for CartPole-v1.

Each function trains until the stopwatch ends the process, or returns when the peer gives up.
"""

from __future__ import annotations

import runpy
import sys
import types
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any
from unittest import mock

import gymnasium
import numpy as np

ENV = "CartPole-v1"


def sb3_ppo(seed: int, sources: Path) -> None:
    """Stable-Baselines3's PPO with rl-zoo's settings (hyperparams/ppo.yml)."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    env = make_vec_env(ENV, n_envs=8, seed=seed)
    settings = {"n_steps": 32, "batch_size": 256, "gae_lambda": 0.8, "gamma": 0.98}
    model = PPO(
        "MlpPolicy",
        env,
        n_epochs=20,
        learning_rate=lambda left: left * 0.001,
        clip_range=lambda left: left * 0.2,
        seed=seed,
        device="cpu",
        **settings,
    )
    model.learn(100_000)


def sb3_a2c(seed: int, sources: Path) -> None:
    """Stable-Baselines3's A2C with rl-zoo's settings (hyperparams/a2c.yml)."""
    from stable_baselines3 import A2C
    from stable_baselines3.common.env_util import make_vec_env

    env = make_vec_env(ENV, n_envs=8, seed=seed)
    A2C("MlpPolicy", env, ent_coef=0.0, seed=seed, device="cpu").learn(500_000)


def tianshou_reinforce(seed: int, sources: Path) -> None:
    """Tianshou's Reinforce with the settings of its test/discrete/test_reinforce.py."""
    import torch
    from tianshou.algorithm import Reinforce
    from tianshou.algorithm.modelfree.reinforce import ProbabilisticActorPolicy
    from tianshou.algorithm.optim import AdamOptimizerFactory
    from tianshou.data import Collector, VectorReplayBuffer
    from tianshou.env import DummyVectorEnv
    from tianshou.trainer import OnPolicyTrainerParams
    from tianshou.utils.net.common import Net

    np.random.seed(seed)
    torch.manual_seed(seed)
    envs = DummyVectorEnv([lambda: gymnasium.make(ENV) for _ in range(8)])
    envs.seed(seed)
    net = Net(state_shape=(4,), action_shape=2, hidden_sizes=[64, 64], softmax=True)
    for module in net.modules():
        if isinstance(module, torch.nn.Linear):
            torch.nn.init.orthogonal_(module.weight, gain=2**0.5)
            torch.nn.init.zeros_(module.bias)
    policy = ProbabilisticActorPolicy(
        actor=net,
        dist_fn=torch.distributions.Categorical,
        action_space=gymnasium.spaces.Discrete(2),
        action_scaling=False,
    )
    algorithm = Reinforce(
        policy=policy,
        optim=AdamOptimizerFactory(lr=1e-3),
        gamma=0.95,
        return_standardization=True,
    )
    collector = Collector(algorithm, envs, VectorReplayBuffer(20_000, len(envs)))
    algorithm.run_training(
        OnPolicyTrainerParams(
            training_collector=collector,
            test_collector=None,
            max_epochs=1_000,
            epoch_num_steps=40_000,
            update_step_num_repetitions=2,
            batch_size=64,
            collection_step_num_episodes=8,
            collection_step_num_env_steps=None,
            show_progress=False,
        )
    )


def cleanrl_ppo(seed: int, sources: Path) -> None:
    """CleanRL's ppo.py, unmodified, with its defaults."""
    _script(sources / "cleanrl_ppo.py", "--no-cuda", "--seed", str(seed))


def pytorch_examples_reinforce(seed: int, sources: Path) -> None:
    """reinforce.py of pytorch/examples, unmodified, with its defaults."""
    _script(sources / "reinforce.py", "--seed", str(seed))


def spinningup_vpg(seed: int, sources: Path) -> None:
    """Spinning Up's VPG, unmodified, with its defaults and as many epochs as it takes.

    Its packages of 2020 are stood in for: gym by gymnasium behind the old interface, MPI by one
    process, TensorFlow (imported, not used by the PyTorch algorithms) and joblib by nothing.
    """
    _stand_in_for_2020()
    sys.path.insert(0, str(sources / "spinningup"))
    package = types.ModuleType("spinup")  # its __init__ imports every TensorFlow algorithm
    package.__path__ = [str(sources / "spinningup" / "spinup")]
    sys.modules["spinup"] = package
    from spinup.algos.pytorch.vpg.vpg import vpg

    vpg(
        lambda: _OldInterface(gymnasium.make(ENV), seed),
        ac_kwargs={"hidden_sizes": [64, 64]},
        seed=seed,
        epochs=1_000_000,
        logger_kwargs={"output_dir": "spinningup"},
    )


PEERS: dict[str, Callable[[int, Path], None]] = {
    "Stable-Baselines3 PPO, rl-zoo": sb3_ppo,
    "Stable-Baselines3 A2C, rl-zoo": sb3_a2c,
    "Tianshou Reinforce": tianshou_reinforce,
    "CleanRL ppo.py": cleanrl_ppo,
    "Spinning Up VPG": spinningup_vpg,
    "pytorch/examples reinforce.py": pytorch_examples_reinforce,
}


class _OldInterface:
    """gym as of 2020: reset() returns the observation, step() one flag."""

    def __init__(self, env: Any, seed: int) -> None:
        self._env, self._seed = env, [seed]
        self.observation_space, self.action_space = env.observation_space, env.action_space

    def reset(self) -> Any:
        return self._env.reset(seed=self._seed.pop() if self._seed else None)[0]

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = self._env.step(action)
        return observation, reward, terminated or truncated, info


def _stand_in_for_2020() -> None:
    def copy(source: Any, target: Any, op: Any = None) -> None:
        target[...] = source

    world = mock.Mock(Get_rank=lambda: 0, Get_size=lambda: 1, Allreduce=copy)
    sys.modules["mpi4py"] = mock.MagicMock(MPI=mock.Mock(COMM_WORLD=world))
    for name in ("tensorflow", "joblib"):
        sys.modules[name] = mock.MagicMock(__spec__=ModuleSpec(name, None))
    sys.modules["gym"], sys.modules["gym.spaces"] = gymnasium, gymnasium.spaces


def _script(path: Path, *arguments: str) -> None:
    sys.argv = [str(path), *arguments]
    runpy.run_path(str(path), run_name="__main__")
