# rule: UnitLaplace, loc
# outcome: 0.5 -3
# says: ∂ loss / ∂ loc | sign(y − μ)
import torch
from torch.distributions import Laplace

import eligibility as el


class UnitLaplace(Laplace):
    def __init__(self, loc):
        super().__init__(loc, torch.ones_like(loc))


@el.register_eligibility(UnitLaplace, "loc", equation="sign(y − μ)")
def unit_laplace_loc(value, loc):
    return torch.sign(value - loc)


loc = torch.zeros(2, requires_grad=True)
loss = -UnitLaplace(loc).log_prob(torch.tensor([0.5, -3.0])).sum()
loss.backward()
