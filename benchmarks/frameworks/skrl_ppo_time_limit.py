"""skrl's PPO with the option that treats a time limit as such."""

import gymnasium as gym
import torch
from skrl.agents.torch.ppo import PPO
from skrl.envs.wrappers.torch import wrap_env
from skrl.memories.torch import RandomMemory
from skrl.models.torch import CategoricalMixin, DeterministicMixin, Model
from skrl.trainers.torch import SequentialTrainer


class Policy(CategoricalMixin, Model):
    def __init__(self, observation_space, action_space, device):
        Model.__init__(
            self, observation_space=observation_space, action_space=action_space, device=device
        )
        CategoricalMixin.__init__(self)
        self.net = torch.nn.Sequential(
            torch.nn.Linear(self.num_observations, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)
        )

    def compute(self, inputs, role):
        return self.net(inputs["observations"]), {}


class Value(DeterministicMixin, Model):
    def __init__(self, observation_space, action_space, device):
        Model.__init__(
            self, observation_space=observation_space, action_space=action_space, device=device
        )
        DeterministicMixin.__init__(self)
        self.net = torch.nn.Sequential(
            torch.nn.Linear(self.num_observations, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)
        )

    def compute(self, inputs, role):
        return self.net(inputs["observations"]), {}


env = wrap_env(gym.make("CartPole-v1"))
device = env.device
agent = PPO(
    models={
        "policy": Policy(env.observation_space, env.action_space, device),
        "value": Value(env.observation_space, env.action_space, device),
    },
    memory=RandomMemory(memory_size=5, num_envs=1, device=device),
    cfg={
        "rollouts": 5,
        "time_limit_bootstrap": True,
        "learning_epochs": 2,
        "mini_batches": 1,
        "experiment": {"write_interval": 0, "checkpoint_interval": 0},
    },
    observation_space=env.observation_space,
    action_space=env.action_space,
    device=device,
)
SequentialTrainer(env=env, agents=agent, cfg={"timesteps": 1000}).train()
