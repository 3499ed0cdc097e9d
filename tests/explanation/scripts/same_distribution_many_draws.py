# rule: categorical, unnormalised weights
# outcome: 0 2 2
# says: ∂ loss / ∂ probs | drawn
import torch

probs = torch.tensor([0.5, 0.3, 0.2], requires_grad=True)
dist = torch.distributions.Categorical(probs=probs)
loss = -dist.log_prob(torch.tensor([0, 2, 2])).sum()
loss.backward()
