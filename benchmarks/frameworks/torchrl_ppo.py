"""TorchRL's tutorial of PPO for CartPole: collector, generalised advantage, clipped loss."""

import torch
from tensordict.nn import TensorDictModule
from torch.distributions import Categorical
from torchrl.collectors import Collector
from torchrl.envs.libs.gym import GymEnv
from torchrl.modules import ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

env = GymEnv("CartPole-v1", categorical_action_encoding=True)
scores = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
actor = ProbabilisticActor(
    TensorDictModule(scores, in_keys=["observation"], out_keys=["logits"]),
    in_keys=["logits"],
    distribution_class=Categorical,
    return_log_prob=True,
)
values = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
critic = ValueOperator(values, in_keys=["observation"])
collector = Collector(env, actor, frames_per_batch=4, total_frames=1000)
advantage = GAE(gamma=0.99, lmbda=0.95, value_network=critic, average_gae=False)
loss_module = ClipPPOLoss(actor, critic, clip_epsilon=0.2, entropy_coeff=0.01)
optimizer = torch.optim.Adam(loss_module.parameters(), lr=1e-3)
for batch in collector:
    for _ in range(2):
        advantage(batch)
        losses = loss_module(batch)
        loss = losses["loss_objective"] + losses["loss_critic"] + losses["loss_entropy"]
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(loss_module.parameters(), 1.0)
        optimizer.step()
