# rule: Bernoulli-logistic unit
# outcome: 1 0 1
# says: ∂ loss / ∂ logit | y − σ(l) | weights
import torch
from torch.distributions import Bernoulli

logit = torch.tensor([0.0, 1.0, -1.0], requires_grad=True)
y = torch.tensor([1.0, 0.0, 1.0])
reward = torch.tensor([1.0, -2.0, 0.5])
loss = -(reward * Bernoulli(logits=logit).log_prob(y)).sum()
loss.backward()
