# rule: Gaussian unit, mean; Gaussian unit, standard deviation
# outcome: 0.4
# says: ∂ loss / ∂ loc
import torch
from torch.distributions import Normal, TransformedDistribution
from torch.distributions.transforms import TanhTransform

loc = torch.tensor(0.1, requires_grad=True)
scale = torch.tensor(0.5, requires_grad=True)
policy = TransformedDistribution(Normal(loc, scale), [TanhTransform()])
loss = -policy.log_prob(torch.tensor(0.4))
loss.backward()
