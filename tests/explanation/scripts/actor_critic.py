# rule: categorical, logits
# outcome: 1 0
# says: ∂ loss | weights | one_hot(a) − softmax(z)
import torch
import torch.nn.functional as F

torch.manual_seed(4)
body, actor, critic = torch.nn.Linear(3, 8), torch.nn.Linear(8, 2), torch.nn.Linear(8, 1)
states, actions, returns = torch.randn(2, 3), torch.tensor([1, 0]), torch.tensor([1.0, -1.0])
features = torch.relu(body(states))
dist = torch.distributions.Categorical(logits=actor(features))
value = critic(features).squeeze(-1)
advantage = returns - value.detach()
loss = -(dist.log_prob(actions) * advantage).mean() + 0.5 * F.mse_loss(value, returns)
loss.backward()
