# rule: Gaussian unit, mean; Gaussian unit, standard deviation
# outcome: 0.95
# says: ∂ loss / ∂ mean | (y − μ)/σ²
import torch

mean = torch.tensor(0.2, requires_grad=True)
std = torch.tensor(0.5, requires_grad=True)
noise = torch.tensor(1.5)
action = (mean + std * noise).detach()
log_prob = -0.5 * ((action - mean) / std) ** 2 - std.log() - 0.9189385
loss = -log_prob * 2.0
loss.backward()
