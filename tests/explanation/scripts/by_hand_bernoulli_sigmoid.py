# rule: Bernoulli-logistic unit
# outcome: 1
# says: ∂ loss / ∂ z | y − σ(l)
import torch
import torch.nn.functional as F

z = torch.tensor([0.4], requires_grad=True)
y = torch.tensor([1.0])
loss = F.binary_cross_entropy_with_logits(z, y)
loss.backward()
