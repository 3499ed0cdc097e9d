# rule: categorical, unnormalised weights
# outcome: 1
# says: clamp | by the rule | --question 6
import torch

probs = torch.tensor([1.0, 1e-9], requires_grad=True)
loss = -torch.distributions.Categorical(probs=probs).log_prob(torch.tensor(1))
loss.backward()
print(probs.grad)
