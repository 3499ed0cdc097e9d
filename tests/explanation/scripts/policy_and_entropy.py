# rule: categorical, logits
# outcome: 2
# says: entropy | h π (log π + H)
import torch

logits = torch.tensor([1.0, 0.0, -1.0], requires_grad=True)
dist = torch.distributions.Categorical(logits=logits)
loss = -2.0 * dist.log_prob(torch.tensor(2)) - 0.1 * dist.entropy()
loss.backward()
