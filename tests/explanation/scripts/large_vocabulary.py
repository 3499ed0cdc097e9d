# rule: categorical, logits
# outcome: 17
# says: → 17 | more
import torch

torch.manual_seed(3)
logits = torch.randn(500, requires_grad=True)
loss = -torch.distributions.Categorical(logits=logits).log_prob(torch.tensor(17))
loss.backward()
