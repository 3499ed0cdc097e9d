# rule: Dirichlet, concentration
# outcome: 0.2 0.3 0.5
# says: ∂ loss / ∂ concentration
import torch

concentration = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
loss = -torch.distributions.Dirichlet(concentration).log_prob(torch.tensor([0.2, 0.3, 0.5]))
loss.backward()
