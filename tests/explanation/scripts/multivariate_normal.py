# rule: multivariate normal, mean
# outcome: 1 -1
# says: ∂ log_prob / ∂ loc | Σ⁻¹
import torch

loc = torch.zeros(2, requires_grad=True)
covariance = torch.tensor([[2.0, 0.5], [0.5, 1.0]])
dist = torch.distributions.MultivariateNormal(loc, covariance)
log_prob = dist.log_prob(torch.tensor([1.0, -1.0]))
log_prob.backward()
