# rule: pathwise, mean; pathwise, standard deviation
# outcome: 0.95
# says: ∂ loss / ∂ mean | through the sample | no REINFORCE
import torch

mean = torch.tensor(0.2, requires_grad=True)
std = torch.tensor(0.5, requires_grad=True)
noise = torch.tensor(1.5)
sample = mean + std * noise
loss = (sample - 1.0) ** 2
loss.backward()
