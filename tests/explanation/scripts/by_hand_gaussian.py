# rule: Gaussian unit, mean; Gaussian unit, standard deviation
# outcome: 0.7
# says: ∂ loss / ∂ mu | (y − μ)/σ²
import math

import torch

mu = torch.tensor(0.2, requires_grad=True)
sigma = torch.tensor(0.5, requires_grad=True)
y = torch.tensor(0.7)
log_prob = -((y - mu) ** 2) / (2 * sigma**2) - torch.log(sigma) - math.log(math.sqrt(2 * math.pi))
loss = -3.0 * log_prob
loss.backward()
