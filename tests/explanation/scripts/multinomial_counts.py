# rule: multinomial, unnormalised weights
# outcome: 2 1 0
# says: drawn 2 times of 3 | ∂ log_prob / ∂ probs | -3.0000
import torch

probs = torch.tensor([0.5, 0.3, 0.2], requires_grad=True)
counts = torch.tensor([2.0, 1.0, 0.0])
log_prob = torch.distributions.Multinomial(3, probs=probs).log_prob(counts)
log_prob.backward()
