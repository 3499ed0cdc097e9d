# rule: Gaussian unit, mean; Gaussian unit, standard deviation
# outcome: 1.5
# says: ∂ loss / ∂ mu | ∂ loss / ∂ sigma | (y − μ)/σ²
import torch

mu = torch.tensor(0.5, requires_grad=True)
sigma = torch.tensor(2.0, requires_grad=True)
loss = -torch.distributions.Normal(mu, sigma).log_prob(torch.tensor(1.5))
loss.backward()
