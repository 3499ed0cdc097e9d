# rule: Binomial, probability
# outcome: 3
# says: ∂ loss / ∂ probs | (y − n p)
import torch

probs = torch.tensor(0.5, requires_grad=True)
loss = torch.distributions.Binomial(4, probs=probs).log_prob(torch.tensor(3.0))
loss.backward()
