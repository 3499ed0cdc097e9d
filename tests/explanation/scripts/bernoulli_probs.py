# rule: Bernoulli unit, probability
# outcome: 1
# says: ∂ loss / ∂ p | (y − p) / (p (1 − p)) | -4.0000 | 1/p
import torch

p = torch.tensor(0.25, requires_grad=True)
coin = torch.distributions.Bernoulli(probs=p)
loss = -coin.log_prob(torch.tensor(1.0))
loss.backward()
