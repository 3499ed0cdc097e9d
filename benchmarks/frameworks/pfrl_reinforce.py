"""PFRL's REINFORCE, fed by a loop of its user's own: its experiments ask for an older Gym."""

import gymnasium as gym
import pfrl
import torch
from pfrl.policies import SoftmaxCategoricalHead

env = gym.make("CartPole-v1")
model = torch.nn.Sequential(
    torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2), SoftmaxCategoricalHead()
)
agent = pfrl.agents.REINFORCE(
    model, torch.optim.Adam(model.parameters(), lr=1e-3), beta=1e-4, batchsize=2
)
for _ in range(100):
    observation, _ = env.reset()
    over = False
    while not over:
        action = agent.act(observation)
        observation, reward, terminated, truncated, _ = env.step(action)
        over = terminated or truncated
        agent.observe(observation, reward, over, reset=False)
