"""PFRL's REINFORCE, as its example trains CartPole."""

import gym
import pfrl
import torch
from pfrl import experiments
from pfrl.policies import SoftmaxCategoricalHead

env = gym.make("CartPole-v0")
env = pfrl.wrappers.CastObservationToFloat32(env)
model = torch.nn.Sequential(
    torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2), SoftmaxCategoricalHead()
)
agent = pfrl.agents.REINFORCE(
    model, torch.optim.Adam(model.parameters(), lr=1e-3), beta=1e-4, batchsize=2
)
experiments.train_agent_with_evaluation(
    agent=agent,
    env=env,
    eval_env=gym.make("CartPole-v0"),
    outdir="results",
    steps=1000,
    eval_n_steps=None,
    eval_n_episodes=2,
    eval_interval=500,
)
