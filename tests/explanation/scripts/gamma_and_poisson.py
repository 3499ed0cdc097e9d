# rule: gamma, rate
# outcome: 1.5
# says: α/β − y | --line 11
import torch
from torch.distributions import Gamma, Poisson

rate = torch.tensor(2.0, requires_grad=True)
loss = Gamma(torch.tensor(3.0), rate).log_prob(torch.tensor(1.5))
loss.backward()
count_loss = Poisson(rate).log_prob(torch.tensor(4.0))
count_loss.backward()
