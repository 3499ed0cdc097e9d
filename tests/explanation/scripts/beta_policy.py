# rule: beta, concentration of 1; beta, concentration of 0
# outcome: 0.3
# says: ∂ loss / ∂ alpha | ∂ loss / ∂ beta
import torch

alpha = torch.tensor(2.0, requires_grad=True)
beta = torch.tensor(3.0, requires_grad=True)
loss = -torch.distributions.Beta(alpha, beta).log_prob(torch.tensor(0.3))
loss.backward()
