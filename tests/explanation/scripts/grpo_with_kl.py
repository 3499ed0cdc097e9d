# rule: categorical, logits
# outcome: 0 2 1
# says: policy | KL | --question 11
import torch

logits = torch.tensor([[[0.5, 0.0, 0.1], [1.0, 0.0, 0.2], [0.0, 1.0, 0.3]]], requires_grad=True)
tokens = torch.tensor([[0, 2, 1]])
advantage = torch.tensor([[1.0]])
reference = torch.tensor([[-1.0, -1.4, -0.6]])
logp = torch.log_softmax(logits, -1).gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
ratio = torch.exp(logp - logp.detach())
per_token_loss = -torch.min(ratio * advantage, torch.clamp(ratio, 0.8, 1.2) * advantage)
kl = torch.exp(reference - logp) - (reference - logp) - 1
loss = (per_token_loss + 0.04 * kl).mean()
loss.backward()
