# rule: Gaussian unit, mean; Gaussian unit, standard deviation
# outcome: 0.95
# says: kept its graph, as rsample does | arrives through the outcome: 6. With the rule's -6 that makes 0
import torch

mean = torch.tensor(0.2, requires_grad=True)
std = torch.tensor(0.5, requires_grad=True)
noise = torch.tensor(1.5)
action = mean + std * noise
loss = -torch.distributions.Normal(mean, std).log_prob(action) * 2.0
loss.backward()
print(mean.grad, std.grad)
