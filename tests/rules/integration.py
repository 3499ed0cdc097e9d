"""Outcomes and their probabilities: all of a finite support, or the nodes of a quadrature.

Nothing here uses a rule, so that averages over these nodes are an independent route. The mass of
each recipe must come out as 1.
"""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor
from torch.distributions import (
    Chi2,
    Distribution,
    LowRankMultivariateNormal,
    Multinomial,
    MultivariateNormal,
    VonMises,
    Wishart,
    biject_to,
)

from tests.rules.cases import Case

DOUBLE = torch.float64


def nodes(case: Case, dist: Distribution) -> tuple[Tensor, Tensor]:
    """Outcomes ``[M, *event]`` of a distribution without batch, and their mass ``[M]``."""
    if dist.has_enumerate_support:
        value = dist.enumerate_support()
        return value, dist.log_prob(value).exp()
    if isinstance(dist, Multinomial):
        return _counts_of(dist)
    if dist.support.is_discrete:
        value = torch.arange(400, dtype=DOUBLE)
        return value, dist.log_prob(value).exp()
    if isinstance(dist, VonMises):
        value = -math.pi + 2 * math.pi * torch.arange(200, dtype=DOUBLE) / 200
        return value, case.log_prob(dist, value).exp() * (2 * math.pi / 200)
    if isinstance(dist, (MultivariateNormal, LowRankMultivariateNormal)):
        return _gaussian(dist)
    if isinstance(dist, Wishart):
        return _bartlett(dist)
    return _mapped(case, dist)


def _counts_of(dist: Multinomial) -> tuple[Tensor, Tensor]:
    rows = itertools.product(range(dist.total_count + 1), repeat=dist.event_shape[0])
    value = torch.tensor([row for row in rows if sum(row) == dist.total_count], dtype=DOUBLE)
    return value, dist.log_prob(value).exp()


def _mapped(case: Case, dist: Distribution) -> tuple[Tensor, Tensor]:
    """A grid on ``sinh`` of the unconstrained space, mapped to the support: double exponential."""
    transform = biject_to(dist.support)
    size = math.prod(transform.inverse_shape(dist.event_shape))
    if size == 1 and transform(torch.zeros(1)) == 0:
        return _real_line(case, dist)
    points, reach = {1: (4001, 5.3), 2: (261, 4.2), 3: (80, 3.1)}[size]
    step = torch.linspace(-reach, reach, points, dtype=DOUBLE)
    grid = torch.cartesian_prod(*[step] * size).reshape(-1, size)
    measure = torch.cosh(grid).prod(-1) * (2 * reach / (points - 1)) ** size
    free = torch.sinh(grid)
    free = free if transform.domain.event_dim else free.squeeze(-1)
    value = transform(free)
    density = case.log_prob(dist, value) + transform.log_abs_det_jacobian(free, value)
    mass = density.exp() * measure
    real = mass > 1e-40  # what is beyond has rounded to the end of the support
    return value[real], mass[real]


def _real_line(case: Case, dist: Distribution) -> tuple[Tensor, Tensor]:
    """``sinh(sinh)`` around the location, midway between two nodes: heavy tails, a kink."""
    step = (torch.arange(-2000, 2000, dtype=DOUBLE) + 0.5) / 500
    value = getattr(dist, "loc", 0.0) + torch.sinh(torch.sinh(step))
    measure = torch.cosh(torch.sinh(step)) * torch.cosh(step) / 500
    mass = case.log_prob(dist, value).exp() * measure
    return value[mass > 0], mass[mass > 0]


def _gaussian(dist: Distribution) -> tuple[Tensor, Tensor]:
    """A product grid in whitened coordinates."""
    size = dist.event_shape[0]
    step = torch.linspace(-8, 8, 45, dtype=DOUBLE)
    grid = torch.cartesian_prod(*[step] * size)
    mass = torch.exp(-(grid**2).sum(-1) / 2) * (16 / 44 / math.sqrt(2 * math.pi)) ** size
    factor = torch.linalg.cholesky(dist.covariance_matrix)
    return dist.loc + grid @ factor.mT, mass


def _bartlett(dist: Wishart) -> tuple[Tensor, Tensor]:
    """``X = L A Aᵀ Lᵀ`` with A = [[a, 0], [b, c]]: a² and c² chi-square, b normal."""
    t = torch.linspace(-16, 5, 90, dtype=DOUBLE)
    b = torch.linspace(-8, 8, 45, dtype=DOUBLE)
    log_a, below, log_c = torch.cartesian_prod(t, b, t).unbind(-1)
    mass = torch.exp(-(below**2) / 2) * (16 / 44 / math.sqrt(2 * math.pi))
    for index, log_square in enumerate((log_a, log_c)):
        square = log_square.exp()
        mass = mass * Chi2(dist.df - index).log_prob(square).exp() * square * (21 / 89)
    factor = torch.zeros(len(mass), 2, 2, dtype=DOUBLE)
    factor[:, 0, 0], factor[:, 1, 0], factor[:, 1, 1] = (log_a / 2).exp(), below, (log_c / 2).exp()
    likely = mass > 1e-25  # the rest would be singular to double precision
    spread = dist.scale_tril @ factor[likely]
    return spread @ spread.mT, mass[likely]
