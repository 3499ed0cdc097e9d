# rule: categorical, logits
# outcome: 1
# says: ∂ loss / ∂ scores | one_hot(a) − softmax(z)
import torch

scores = torch.tensor([0.3, 0.3, -2.0], requires_grad=True)
probs = torch.softmax(scores, dim=0)
action = 1
loss = -torch.log(probs[action])
loss.backward()
