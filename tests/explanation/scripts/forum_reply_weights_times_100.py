# rule: categorical, unnormalised weights
# outcome: 0
# says: ∂ prob / ∂ probs | → 0 | 0.0031 | -0.0069 | [k = a]/w_k − 1/Σw
import torch

probs = torch.tensor([[69.0, 10.0, 20.0, 1.0]], requires_grad=True)
dist = torch.distributions.Categorical(probs=probs)
prob = torch.exp(dist.log_prob(torch.tensor([0])))
prob.backward()
print("probs-grad:", probs.grad)
