# rule: categorical, logits
# outcome: 0
# says: ∂ score / ∂ logits
import torch

logits = torch.tensor([0.0, 1.0], requires_grad=True)
score = torch.distributions.Categorical(logits=logits).log_prob(torch.tensor(0))
(gradient,) = torch.autograd.grad(score, logits)
assert gradient[1] == 0, "only the drawn logit should move"
