# rule: categorical, logits
# outcome: 0
# says: step | weight | π(a)
import torch

torch.manual_seed(1)
policy = torch.nn.Linear(3, 2)
log_probs, rewards = [], []
for t in range(6):
    dist = torch.distributions.Categorical(logits=policy(torch.randn(3)))
    action = torch.tensor(t % 2)
    log_probs.append(dist.log_prob(action))
    rewards.append(float(t))
loss = -(torch.stack(log_probs) * torch.tensor(rewards)).sum()
loss.backward()
