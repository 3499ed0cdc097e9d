"""One recipe for each distribution with rules: how to draw its parameters, and how to build it.

The contract tests loop over them; a rule without a case fails `test_every_rule_has_a_case`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributions import (
    Bernoulli,
    Beta,
    Binomial,
    Categorical,
    Cauchy,
    Chi2,
    ContinuousBernoulli,
    Dirichlet,
    Distribution,
    Exponential,
    FisherSnedecor,
    Gamma,
    GeneralizedPareto,
    Geometric,
    Gumbel,
    HalfCauchy,
    HalfNormal,
    Independent,
    InverseGamma,
    Kumaraswamy,
    Laplace,
    LKJCholesky,
    LogisticNormal,
    LogNormal,
    LowRankMultivariateNormal,
    MixtureSameFamily,
    Multinomial,
    MultivariateNormal,
    NegativeBinomial,
    Normal,
    OneHotCategorical,
    OneHotCategoricalStraightThrough,
    Pareto,
    Poisson,
    RelaxedBernoulli,
    RelaxedOneHotCategorical,
    StudentT,
    TransformedDistribution,
    Uniform,
    VonMises,
    Weibull,
    Wishart,
)
from torch.distributions.relaxed_bernoulli import LogitRelaxedBernoulli
from torch.distributions.relaxed_categorical import ExpRelaxedCategorical
from torch.distributions.transforms import AffineTransform, ExpTransform

Draw = Callable[[tuple[int, ...], torch.Generator], Tensor]


@dataclass(frozen=True)
class Case:
    """How to build one parameterisation of one distribution.

    Attributes:
        distribution: The class, which `build` returns an instance of.
        draws: Parameter -> function of (batch shape, generator) that draws it in float64.
        build: The constructor.
        density: ``log_prob(dist, value)`` where torch's own fails or is not accurate.
    """

    distribution: type[Distribution]
    draws: Mapping[str, Draw]
    build: Callable[..., Distribution]
    density: Callable[[Distribution, Tensor], Tensor] | None = None

    @property
    def name(self) -> str:
        return f"{self.distribution.__name__}({', '.join(self.draws)})"

    def log_prob(self, dist: Distribution, value: Tensor) -> Tensor:
        return dist.log_prob(value) if self.density is None else self.density(dist, value)

    def parameters(self, batch_shape: tuple[int, ...], seed: int) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        return {name: draw(batch_shape, generator) for name, draw in self.draws.items()}


def uniform(low: float, high: float, *event_shape: int) -> Draw:
    """A draw of entries uniform in [low, high)."""

    def draw(batch_shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        shape = batch_shape + event_shape
        unit = torch.rand(shape, generator=generator, dtype=torch.float64)
        return low + (high - low) * unit

    return draw


def simplex(categories: int) -> Draw:
    """A draw of strictly positive probabilities that sum to 1."""

    def draw(batch_shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        weights = uniform(0.1, 1.0, categories)(batch_shape, generator)
        return weights / weights.sum(-1, keepdim=True)

    return draw


def positive_definite(size: int) -> Draw:
    """A draw of well-conditioned symmetric positive definite matrices."""

    def draw(batch_shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        factor = lower_triangular(size)(batch_shape, generator)
        return factor @ factor.transpose(-1, -2)

    return draw


def lower_triangular(size: int) -> Draw:
    """A draw of lower triangular matrices with a positive diagonal."""

    def draw(batch_shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        below = uniform(-0.5, 0.5, size, size)(batch_shape, generator).tril(-1)
        return below + torch.diag_embed(uniform(0.7, 1.5, size)(batch_shape, generator))

    return draw


def von_mises_density(dist: Distribution, value: Tensor) -> Tensor:
    """torch's polynomial for ln I₀(κ) is good to seven digits only."""
    kappa = dist.concentration
    normaliser = math.log(2 * math.pi) + torch.special.i0e(kappa).log() + kappa
    return kappa * torch.cos(value - dist.loc) - normaliser


def generalized_pareto_density(dist: Distribution, value: Tensor) -> Tensor:
    """torch's fails in float64: it compares the concentration with a float32 zero."""
    shape = dist.concentration
    z = (value - dist.loc) / dist.scale
    return -dist.scale.log() - (1 + 1 / shape) * torch.log1p(shape * z)


LOCATION, SCALE = uniform(-1, 1), uniform(0.5, 2)
TEMPERATURE = torch.tensor(0.8, dtype=torch.float64)
MATRICES = {
    "covariance_matrix": positive_definite(2),
    "precision_matrix": positive_definite(2),
    "scale_tril": lower_triangular(2),
}

CASES = [
    Case(Bernoulli, {"probs": uniform(0.05, 0.95)}, Bernoulli),
    Case(Bernoulli, {"logits": uniform(-3, 3)}, Bernoulli),
    Case(Binomial, {"probs": uniform(0.05, 0.95)}, lambda probs: Binomial(4, probs=probs)),
    Case(Binomial, {"logits": uniform(-3, 3)}, lambda logits: Binomial(4, logits=logits)),
    Case(Categorical, {"probs": simplex(4)}, Categorical),
    Case(Categorical, {"logits": uniform(-2, 2, 4)}, Categorical),
    Case(OneHotCategorical, {"probs": simplex(4)}, OneHotCategorical),
    Case(OneHotCategorical, {"logits": uniform(-2, 2, 4)}, OneHotCategorical),
    Case(OneHotCategoricalStraightThrough, {"probs": simplex(4)}, OneHotCategoricalStraightThrough),
    Case(Multinomial, {"probs": simplex(3)}, lambda probs: Multinomial(5, probs=probs)),
    Case(Multinomial, {"logits": uniform(-2, 2, 3)}, lambda logits: Multinomial(5, logits=logits)),
    Case(Poisson, {"rate": uniform(0.5, 4)}, Poisson),
    Case(Geometric, {"probs": uniform(0.3, 0.9)}, Geometric),
    Case(Geometric, {"logits": uniform(-0.5, 2)}, Geometric),
    Case(
        NegativeBinomial,
        {"total_count": uniform(0.5, 4), "probs": uniform(0.1, 0.6)},
        NegativeBinomial,
    ),
    Case(
        NegativeBinomial,
        {"total_count": uniform(0.5, 4), "logits": uniform(-2, 0.4)},
        NegativeBinomial,
    ),
    Case(Normal, {"loc": LOCATION, "scale": SCALE}, Normal),
    Case(LogNormal, {"loc": LOCATION, "scale": SCALE}, LogNormal),
    Case(Laplace, {"loc": LOCATION, "scale": SCALE}, Laplace),
    Case(Cauchy, {"loc": LOCATION, "scale": SCALE}, Cauchy),
    Case(StudentT, {"df": uniform(0.5, 5), "loc": LOCATION, "scale": SCALE}, StudentT),
    Case(Gumbel, {"loc": LOCATION, "scale": SCALE}, Gumbel),
    Case(Exponential, {"rate": SCALE}, Exponential),
    Case(Gamma, {"concentration": SCALE, "rate": SCALE}, Gamma),
    Case(Chi2, {"df": uniform(0.5, 5)}, Chi2),
    Case(InverseGamma, {"concentration": SCALE, "rate": SCALE}, InverseGamma),
    Case(FisherSnedecor, {"df1": uniform(1, 5), "df2": uniform(1, 5)}, FisherSnedecor),
    Case(Weibull, {"scale": SCALE, "concentration": SCALE}, Weibull),
    Case(HalfNormal, {"scale": SCALE}, HalfNormal),
    Case(HalfCauchy, {"scale": SCALE}, HalfCauchy),
    Case(Beta, {"concentration1": SCALE, "concentration0": SCALE}, Beta),
    Case(Kumaraswamy, {"concentration1": SCALE, "concentration0": SCALE}, Kumaraswamy),
    Case(ContinuousBernoulli, {"probs": uniform(0.1, 0.4)}, ContinuousBernoulli),
    Case(ContinuousBernoulli, {"logits": uniform(0.5, 3)}, ContinuousBernoulli),
    Case(
        RelaxedBernoulli,
        {"probs": uniform(0.1, 0.9)},
        lambda probs: RelaxedBernoulli(TEMPERATURE, probs=probs),
    ),
    Case(
        RelaxedBernoulli,
        {"logits": uniform(-2, 2)},
        lambda logits: RelaxedBernoulli(TEMPERATURE, logits=logits),
    ),
    Case(
        LogitRelaxedBernoulli,
        {"probs": uniform(0.1, 0.9)},
        lambda probs: LogitRelaxedBernoulli(TEMPERATURE, probs=probs),
    ),
    Case(
        RelaxedOneHotCategorical,
        {"probs": simplex(3)},
        lambda probs: RelaxedOneHotCategorical(TEMPERATURE, probs=probs),
    ),
    Case(
        RelaxedOneHotCategorical,
        {"logits": uniform(-2, 2, 3)},
        lambda logits: RelaxedOneHotCategorical(TEMPERATURE, logits=logits),
    ),
    Case(
        ExpRelaxedCategorical,
        {"logits": uniform(-2, 2, 3)},
        lambda logits: ExpRelaxedCategorical(TEMPERATURE, logits=logits),
    ),
    Case(Dirichlet, {"concentration": uniform(0.5, 3, 3)}, Dirichlet),
    Case(LogisticNormal, {"loc": uniform(-1, 1, 2), "scale": uniform(0.5, 2, 2)}, LogisticNormal),
    Case(
        VonMises, {"loc": LOCATION, "concentration": uniform(0.3, 4)}, VonMises, von_mises_density
    ),
    Case(Uniform, {"low": uniform(-1, 0), "high": uniform(0.5, 2)}, Uniform),
    Case(Pareto, {"scale": SCALE, "alpha": uniform(1, 3)}, Pareto),
    Case(
        GeneralizedPareto,
        {"loc": LOCATION, "scale": SCALE, "concentration": uniform(-0.4, 0.8)},
        GeneralizedPareto,
        generalized_pareto_density,
    ),
    *(
        Case(MultivariateNormal, {"loc": uniform(-1, 1, 2), given: draw}, MultivariateNormal)
        for given, draw in MATRICES.items()
    ),
    *(
        Case(Wishart, {"df": uniform(3, 6), given: draw}, Wishart)
        for given, draw in MATRICES.items()
    ),
    Case(
        LowRankMultivariateNormal,
        {
            "loc": uniform(-1, 1, 3),
            "cov_factor": uniform(-1, 1, 3, 2),
            "cov_diag": uniform(0.5, 2, 3),
        },
        LowRankMultivariateNormal,
    ),
    Case(
        LKJCholesky,
        {"concentration": uniform(0.5, 3)},
        lambda concentration: LKJCholesky(3, concentration),
    ),
]


def mixture(**parameters: Tensor) -> Distribution:
    """A mixture of three normals or, with one more axis, of diagonal ones."""
    inside = {path.rpartition(".")[2]: tensor for path, tensor in parameters.items()}
    weights = {name: inside.pop(name) for name in ("probs", "logits") if name in inside}
    component: Distribution = Normal(**inside)
    if component.batch_shape != next(iter(weights.values())).shape:
        component = Independent(component, 1)
    return MixtureSameFamily(Categorical(**weights), component)


COMPOSED = [
    Case(
        Independent,
        {"loc": uniform(-1, 1, 2), "scale": uniform(0.5, 2, 2)},
        lambda loc, scale: Independent(Normal(loc, scale), 1),
    ),
    Case(
        Independent,
        {"probs": uniform(0.1, 0.9, 2, 2)},
        lambda probs: Independent(Bernoulli(probs), 2),
    ),
    Case(
        TransformedDistribution,
        {"loc": LOCATION, "scale": SCALE},
        lambda loc, scale: TransformedDistribution(
            Normal(loc, scale), [ExpTransform(), AffineTransform(1.0, 2.0)]
        ),
    ),
    Case(
        TransformedDistribution,
        {"concentration": uniform(1, 3, 2), "rate": uniform(0.5, 2, 2)},
        lambda concentration, rate: TransformedDistribution(
            Independent(Gamma(concentration, rate), 1), AffineTransform(0.0, 3.0)
        ),
    ),
    Case(
        MixtureSameFamily,
        {
            "mixture_distribution.logits": uniform(-1, 1, 3),
            "component_distribution.loc": uniform(-2, 2, 3),
            "component_distribution.scale": uniform(0.5, 2, 3),
        },
        mixture,
    ),
    Case(
        MixtureSameFamily,
        {
            "mixture_distribution.probs": simplex(3),
            "component_distribution.loc": uniform(-2, 2, 3, 2),
            "component_distribution.scale": uniform(0.5, 2, 3, 2),
        },
        mixture,
    ),
    Case(
        TransformedDistribution,
        {
            "mixture_distribution.probs": simplex(3),
            "component_distribution.loc": uniform(-2, 2, 3),
            "component_distribution.scale": uniform(0.5, 2, 3),
        },
        lambda **parameters: TransformedDistribution(mixture(**parameters), ExpTransform()),
    ),
]
