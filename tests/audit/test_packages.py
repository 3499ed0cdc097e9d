"""Packages that the project does not install: their programs come to an update under the audit.

Each is skipped, and says so, where its package is absent.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from eligibility.audit.job import SIZES, Job
from eligibility.audit.running.runner import ScriptRunner

PFRL = """
import gymnasium as gym
import pfrl, torch
from torch import nn

env = pfrl.wrappers.CastObservationToFloat32(gym.make("CartPole-v1"))
head = pfrl.policies.SoftmaxCategoricalHead()
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2), head)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
agent = pfrl.agents.REINFORCE(model, optimizer, beta=0.0, batchsize=1)
while True:
    obs, _ = env.reset()
    done = False
    while not done:
        obs, reward, terminated, truncated, _ = env.step(agent.act(obs))
        done = terminated or truncated
        agent.observe(obs, reward, terminated, done)
"""
LIGHTNING = """
import gymnasium as gym
import lightning, torch
from torch import nn
from torch.distributions import Categorical


class Agent(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net, self.env = nn.Linear(4, 2), gym.make("CartPole-v1")

    def training_step(self, batch, index):
        obs, _ = self.env.reset()
        done, loss, total = False, 0.0, 0.0
        while not done:
            dist = Categorical(logits=self.net(torch.as_tensor(obs, dtype=torch.float32)))
            action = dist.sample()
            obs, reward, terminated, truncated, _ = self.env.step(action.item())
            loss, total = loss - dist.log_prob(action), total + reward
            done = terminated or truncated
        return loss * total

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-2)

    def train_dataloader(self):
        return torch.utils.data.DataLoader(range(100), batch_size=1, num_workers=2)


off = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
lightning.Trainer(max_epochs=2, accelerator="cpu", **off).fit(Agent())
"""
IMPORTED = {name: f"import {name}\n" for name in ("skrl",)}


@pytest.mark.parametrize(
    ("package", "text"), [("pfrl", PFRL), ("lightning", LIGHTNING), *IMPORTED.items()]
)
def test_a_program_of_another_package_runs(tmp_path: Path, package: str, text: str) -> None:
    pytest.importorskip(package, reason=f"{package} is not installed")
    path = tmp_path / "program.py"
    path.write_text(text, encoding="utf-8")
    with ScriptRunner(path, (), 60, 4096, False) as runner:
        trace = runner.run(Job((), SIZES[0], seed=1))
    assert trace.outcome == ("finished" if package in IMPORTED else "updated"), trace.detail
    assert bool(trace.updates) == (package not in IMPORTED)
