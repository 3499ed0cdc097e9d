# rule: categorical, logits; backpropagation into the weights of a linear layer
# outcome: 0 1 1 0 1
# says: ∂ loss | one_hot(a) − softmax(z) | δ_i x_j
import torch

torch.manual_seed(0)
policy = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))
observations = torch.randn(5, 4)
actions = torch.tensor([0, 1, 1, 0, 1])
returns = torch.tensor([5.0, 4.0, 3.0, 2.0, 1.0])
dist = torch.distributions.Categorical(logits=policy(observations))
loss = -(dist.log_prob(actions) * (returns - returns.mean())).mean()
loss.backward()
