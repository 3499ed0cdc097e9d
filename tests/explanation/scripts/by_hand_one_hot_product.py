# rule: categorical, logits
# outcome: 2 0
# says: ∂ loss / ∂ logits | one_hot(a) − softmax(z)
import torch
import torch.nn.functional as F

logits = torch.tensor([[0.5, -0.5, 0.1], [0.0, 1.0, 0.2]], requires_grad=True)
onehot = F.one_hot(torch.tensor([2, 0]), 3).float()
log_probs = F.log_softmax(logits, dim=-1)
loss = -(onehot * log_probs).sum()
loss.backward()
