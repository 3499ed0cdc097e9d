# rule: Bernoulli unit, probability
# outcome: 1
# says: log_prob.grad is None | retain_grad()
import torch

w = torch.tensor(0.3, requires_grad=True)
log_prob = torch.distributions.Bernoulli(probs=w).log_prob(torch.tensor(1.0))
(log_prob * 2).backward()
print(log_prob.grad)
