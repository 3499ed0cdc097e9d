# rule: categorical, logits
# outcome: 0 1 1 0
# says: clipped | ratio
import torch

logits = torch.tensor([[0.5, 0.0], [1.0, 0.0], [0.0, 1.0], [0.2, 0.1]], requires_grad=True)
actions = torch.tensor([0, 1, 1, 0])
old = torch.tensor([-1.5, -1.0, -0.4, -0.65])
advantage = torch.tensor([1.0, -1.0, 2.0, 0.5])
dist = torch.distributions.Categorical(logits=logits)
ratio = torch.exp(dist.log_prob(actions) - old)
loss = -torch.min(ratio * advantage, torch.clamp(ratio, 0.8, 1.2) * advantage).mean()
loss.backward()
