# rule: multinomial, logits
# outcome: 0 1 0
# says: ∂ objective / ∂ logits | → 1
import torch

logits = torch.zeros(3, requires_grad=True)
drawn = torch.tensor([0.0, 1.0, 0.0])
objective = torch.distributions.OneHotCategorical(logits=logits).log_prob(drawn)
objective.backward()
