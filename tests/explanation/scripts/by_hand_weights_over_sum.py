# rule: categorical, unnormalised weights
# outcome: 2
# says: ∂ loss / ∂ w | [k = a]/w_k − 1/Σw
import torch

w = torch.tensor([1.0, 2.0, 5.0], requires_grad=True)
loss = torch.log(w / w.sum())[2]
loss.backward()
