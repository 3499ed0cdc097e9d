# rule: categorical, logits
# outcome: 1
# says: ∂ loss / ∂ z | one_hot(a) − softmax(z)
import torch

z = torch.tensor([0.1, 0.7, -0.3], requires_grad=True)
e = torch.exp(z)
p = e / e.sum()
loss = -torch.log(p[1]) * 2.0
loss.backward()
