"""Continuous actions, drawn by torch: the enumerator answers with few values of each number."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import distributions

from eligibility.audit.interception.numpy_samplers import answer
from eligibility.audit.interception.recorder import Recorder
from eligibility.audit.patches import Patches
from eligibility.audit.raised import precision_note
from eligibility.audit.trace import Density


def enumerate_gaussian(patches: Patches, recorder: Recorder) -> None:
    """torch's normal distributions and ``torch.normal``."""

    def nodes(loc: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        """Standard normal nodes, one choice an element."""
        first = len(recorder.choices.draws)
        recorder.note(precision_note(loc.dtype))
        chosen, values = [], []
        pairs = zip(loc.reshape(-1).tolist(), scale.reshape(-1).tolist(), strict=True)
        with torch.enable_grad():
            laws = torch.stack([loc.reshape(-1), scale.reshape(-1)], dim=-1)
        for number, (mean, deviation) in enumerate(pairs):
            chosen.append(recorder.choices.choose_normal(mean, deviation))
            values.append(mean + deviation * chosen[-1])
            recorder.differentiate(first + number, laws[number])
        recorder.sampled(values)
        return torch.tensor(chosen, dtype=loc.dtype).reshape(loc.shape)

    def rsample(self: distributions.Normal, sample_shape: Any = ()) -> Any:
        shape = torch.Size(sample_shape) + self.batch_shape
        loc, scale = self.loc.expand(shape), self.scale.expand(shape)
        return loc + scale * nodes(loc, scale)

    def sample(self: distributions.Normal, sample_shape: Any = ()) -> Any:
        with torch.no_grad():
            return self.rsample(torch.Size(sample_shape)).detach()

    def vector_rsample(self: distributions.MultivariateNormal, sample_shape: Any = ()) -> Any:
        shape = torch.Size(sample_shape) + self.batch_shape + self.event_shape
        factor = self.scale_tril
        diagonal = factor.diagonal(dim1=-2, dim2=-1)
        if (factor - torch.diag_embed(diagonal)).abs().max() > 0:
            recorder.note("correlated-gaussian")
        loc, scale = self.loc.expand(shape), diagonal.expand(shape)
        standard = nodes(loc, scale)
        return loc + (factor @ standard.unsqueeze(-1)).squeeze(-1)

    def normal(mean: Any, std: Any = 1.0, *args: Any, **options: Any) -> Any:
        tensors = isinstance(mean, torch.Tensor) or isinstance(std, torch.Tensor)
        if set(options) - {"generator"} or len(args) != (0 if tensors else 1):
            return NotImplemented
        if not tensors:
            return torch.randn(*args) * std + mean
        loc, scale = torch.as_tensor(mean), torch.as_tensor(std)
        loc, scale = loc + torch.zeros_like(scale), scale + torch.zeros_like(loc)
        return loc.detach() + scale.detach() * nodes(loc, scale)

    answer(patches, recorder, distributions.Normal, "rsample", rsample)
    patches.set(distributions.Normal, "sample", sample)
    answer(patches, recorder, distributions.MultivariateNormal, "rsample", vector_rsample)
    answer(patches, recorder, torch, "normal", normal)


def enumerate_beta(patches: Patches, recorder: Recorder) -> None:
    """torch's beta distribution."""

    def rsample(self: distributions.Beta, sample_shape: Any = ()) -> Any:
        shape = torch.Size(sample_shape) + self.batch_shape
        alphas, betas = self.concentration1.expand(shape), self.concentration0.expand(shape)
        first = len(recorder.choices.draws)
        recorder.note(precision_note(alphas.dtype))
        with torch.enable_grad():
            laws = torch.stack([alphas.reshape(-1), betas.reshape(-1)], dim=-1)
        values = []
        for number, law in enumerate(laws):
            alpha, beta = law.tolist()
            density_at = partial(_beta_density, alpha, beta)
            values.append(recorder.choices.choose_beta(alpha, beta, density_at))
            recorder.differentiate(first + number, law)
        recorder.sampled(values)
        drawn = torch.tensor(values, dtype=alphas.dtype).reshape(shape)
        return _moving(drawn, alphas, betas) if torch.is_grad_enabled() else drawn

    answer(patches, recorder, distributions.Beta, "rsample", rsample)


def _beta_density(alpha: float, beta: float, value: float) -> Density:
    """By the concentrations; as a Dirichlet's, whose calls are not noted."""
    law = torch.tensor([alpha, beta], dtype=torch.float64, requires_grad=True)
    with torch.enable_grad():
        dist: Any = distributions.Dirichlet(law)
        log = dist.log_prob(torch.tensor([value, 1.0 - value], dtype=law.dtype))
        by_alpha, by_beta = torch.autograd.grad(log, law)[0].tolist()
        entropy_by_alpha, entropy_by_beta = torch.autograd.grad(dist.entropy(), law)[0].tolist()
    return Density(log.item(), (by_alpha, by_beta), (entropy_by_alpha, entropy_by_beta))


def _moving(drawn: torch.Tensor, alphas: torch.Tensor, betas: torch.Tensor) -> torch.Tensor:
    """``drawn`` as a function of its concentrations, by implicit differentiation as torch does."""
    both = torch.stack([drawn, 1.0 - drawn], -1), torch.stack([alphas, betas], -1).detach()
    slopes = torch._dirichlet_grad(*both, both[1].sum(-1, keepdim=True).expand_as(both[1]))
    by_alpha = slopes[..., 0] * (1.0 - drawn) * (alphas - alphas.detach())
    by_beta = slopes[..., 1] * drawn * (betas - betas.detach())
    return drawn + by_alpha - by_beta
