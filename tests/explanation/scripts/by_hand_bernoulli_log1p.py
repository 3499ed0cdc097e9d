# rule: Bernoulli unit, probability
# outcome: 1 0
# says: ∂ loss / ∂ p | (y − p) / (p (1 − p))
import torch

p = torch.tensor([0.3, 0.8], requires_grad=True)
y = torch.tensor([1.0, 0.0])
log_prob = y * torch.log(p) + (1 - y) * torch.log1p(-p)
loss = -(log_prob * torch.tensor([2.0, 1.0])).sum()
loss.backward()
