# rule: categorical, logits
# outcome: 1
# says: step | weight | π(a)
import torch

torch.manual_seed(2)
cell = torch.nn.LSTMCell(3, 5)
head = torch.nn.Linear(5, 4)
hidden = (torch.zeros(1, 5), torch.zeros(1, 5))
loss = 0.0
for t, action in enumerate([1, 3, 0, 2]):
    hidden = cell(torch.randn(1, 3), hidden)
    dist = torch.distributions.Categorical(logits=head(hidden[0]))
    loss = loss - dist.log_prob(torch.tensor([action])).squeeze() * (4 - t)
loss.backward()
