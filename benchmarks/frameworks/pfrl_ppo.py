"""PFRL's PPO, fed by a loop of its user's own."""

import gymnasium as gym
import pfrl
import torch
from pfrl.policies import SoftmaxCategoricalHead

env = gym.make("CartPole-v1")
policy = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
value = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
model = pfrl.nn.Branched(torch.nn.Sequential(policy, SoftmaxCategoricalHead()), value)
agent = pfrl.agents.PPO(
    model,
    torch.optim.Adam(model.parameters(), lr=1e-3),
    update_interval=4,
    minibatch_size=4,
    epochs=2,
)
for _ in range(100):
    observation, _ = env.reset()
    over = False
    while not over:
        action = agent.act(observation)
        observation, reward, terminated, truncated, _ = env.step(action)
        over = terminated or truncated
        agent.observe(observation, reward, terminated, truncated)
