# rule: Gaussian unit, mean; Gaussian unit, standard deviation
# outcome: 0.3 -0.2
# says: ∂ loss / ∂ mean | log_std
import torch

mean = torch.tensor([0.0, 0.1], requires_grad=True)
log_std = torch.tensor([-0.5, -0.5], requires_grad=True)
dist = torch.distributions.Normal(mean, log_std.exp())
action = torch.tensor([0.3, -0.2])
loss = -(dist.log_prob(action).sum() * 1.7)
loss.backward()
