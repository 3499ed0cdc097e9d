# rule: categorical, logits
# outcome: 0 1
# says: ∂ loss / ∂ logits | one_hot(a) − softmax(z)
import torch
import torch.nn.functional as F

logits = torch.tensor([[0.5, -0.5], [0.0, 1.0]], requires_grad=True)
actions = torch.tensor([0, 1])
returns = torch.tensor([2.0, -1.0])
loss = (F.cross_entropy(logits, actions, reduction="none") * returns).mean()
loss.backward()
