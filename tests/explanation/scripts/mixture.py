# rule: mixture, logits
# outcome: 0.7
# says: ∂ loss / ∂ logits | ∂ loss / ∂ means
import torch
from torch.distributions import Categorical, MixtureSameFamily, Normal

logits = torch.zeros(2, requires_grad=True)
means = torch.tensor([-1.0, 1.0], requires_grad=True)
dist = MixtureSameFamily(Categorical(logits=logits), Normal(means, torch.ones(2)))
loss = -dist.log_prob(torch.tensor(0.7))
loss.backward()
