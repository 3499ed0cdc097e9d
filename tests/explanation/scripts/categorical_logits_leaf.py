# rule: categorical, logits
# outcome: 2
# says: ∂ loss / ∂ logits | → 2 | one_hot(a) − softmax(z) | ∂ loss/∂ log p = -3
import torch

logits = torch.tensor([0.5, -1.0, 2.0], requires_grad=True)
policy = torch.distributions.Categorical(logits=logits)
loss = -3.0 * policy.log_prob(torch.tensor(2))
loss.backward()
