"""REINFORCE as a LightningModule, whose data are episodes it plays itself."""

import gymnasium as gym
import lightning
import torch
from torch.distributions import Categorical
from torch.utils.data import DataLoader, IterableDataset


class Episodes(IterableDataset):
    def __init__(self, policy):
        self.policy = policy
        self.env = gym.make("CartPole-v1")

    def __iter__(self):
        while True:
            observations, actions, rewards = [], [], []
            observation, _ = self.env.reset()
            over = False
            while not over:
                seen = torch.as_tensor(observation, dtype=torch.float32)
                with torch.no_grad():
                    action = Categorical(logits=self.policy(seen)).sample()
                observations.append(seen)
                actions.append(action)
                observation, reward, terminated, truncated, _ = self.env.step(action.item())
                rewards.append(float(reward))
                over = terminated or truncated
            returns, total = [], 0.0
            for reward in reversed(rewards):
                total = reward + 0.99 * total
                returns.insert(0, total)
            yield torch.stack(observations), torch.stack(actions), torch.tensor(returns)


class Reinforce(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.policy = torch.nn.Sequential(
            torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)
        )

    def training_step(self, batch, _):
        observations, actions, returns = batch
        log_probs = Categorical(logits=self.policy(observations)).log_prob(actions)
        return -(log_probs * returns).sum()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)

    def train_dataloader(self):
        return DataLoader(Episodes(self.policy), batch_size=None)


lightning.Trainer(max_steps=200, logger=False, enable_checkpointing=False).fit(Reinforce())
