# rule: categorical, logits
# outcome: 1 2
# says: ∂ loss / ∂ z | one_hot(a) − softmax(z)
import torch
import torch.nn.functional as F

z = torch.tensor([[0.1, 0.2, 0.3], [1.0, 0.0, -1.0]], requires_grad=True)
loss = F.nll_loss(torch.log(torch.softmax(z, dim=1)), torch.tensor([1, 2]))
loss.backward()
