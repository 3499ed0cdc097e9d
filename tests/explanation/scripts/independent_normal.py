# rule: Gaussian unit, mean; Gaussian unit, standard deviation
# outcome: 0.5 -1
# says: ∂ loss / ∂ loc | (y − μ)/σ²
import torch
from torch.distributions import Independent, Normal

loc = torch.zeros(2, requires_grad=True)
scale = torch.ones(2, requires_grad=True)
policy = Independent(Normal(loc, scale), 1)
loss = -2 * policy.log_prob(torch.tensor([0.5, -1.0]))
loss.backward()
