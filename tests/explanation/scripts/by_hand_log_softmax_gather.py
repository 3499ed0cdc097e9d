# rule: categorical, logits
# outcome: 0 2
# says: ∂ loss / ∂ logits | weights
import torch

logits = torch.tensor([[0.1, 0.2, 0.3], [1.0, 0.0, -1.0]], requires_grad=True)
actions = torch.tensor([0, 2])
returns = torch.tensor([1.0, -0.5])
log_probs = torch.log_softmax(logits, dim=-1).gather(1, actions.unsqueeze(1)).squeeze(1)
loss = -(log_probs * returns).mean()
loss.backward()
