"""Distributions of one number: densities from their textbook formulas, wide grids, and edges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath as mp
import torch
from mpmath import mpf
from torch import Tensor, distributions

from benchmarks.exactness.family import Columns, Draws, Family

INF = float("inf")
SIZE = (-6, 6)  # exponents of "huge and tiny"


def _log_odds(probs: mpf, **_: Any) -> mpf:
    return mp.log(probs / (1 - probs)) if 0 < probs < 1 else mp.inf * (1 if probs else -1)


def _probability(logits: mpf, **_: Any) -> mpf:
    return 1 / (1 + mp.exp(-logits))


def _times_log(count: mpf, argument: mpf) -> mpf:
    return count * mp.log(argument) if count else mpf(0)


def _both(
    label: str,
    build: Callable[..., Any],
    density: Callable[..., mpf],
    value: Callable[[Draws, Columns], Tensor],
    arguments: Callable[[Draws], Columns] = lambda draws: {},
    edges: tuple[dict[str, Any], ...] = (),
    **rest: Any,
) -> list[Family]:
    """A family by probs and by logits; ``density`` is one of ``p`` and ``q = 1 − p``."""

    def by_probs(probs: mpf, **others: Any) -> mpf:
        return density(p=probs, q=1 - probs, **others)

    def by_logits(logits: mpf, **others: Any) -> mpf:
        return density(p=_probability(logits), q=_probability(-logits), **others)

    def draw(name: str) -> Callable[[Draws], Columns]:
        def columns(draws: Draws) -> Columns:
            own = draws.probability() if name == "probs" else draws.signed(-6, 2.5)
            given = {name: own, **arguments(draws)}
            return {**given, "value": value(draws, given)}

        return columns

    probs_edges = tuple(edge for edge in edges if "probs" in edge)
    logits_edges = tuple(edge for edge in edges if "logits" in edge)
    return [
        Family(
            label, build, by_probs, draw("probs"), probs_edges,
            converted={"logits": (_log_odds, by_logits)}, **rest,
        ),
        Family(
            label, build, by_logits, draw("logits"), logits_edges,
            converted={"probs": (_probability, by_probs)}, **rest,
        ),
    ]  # fmt: skip


def _coins() -> list[Family]:
    def coin(value: mpf, p: mpf, q: mpf, total_count: float = 1) -> mpf:
        return _times_log(value, p) + _times_log(total_count - value, q)

    def geometric(value: mpf, p: mpf, q: mpf) -> mpf:
        return _times_log(value, q) + mp.log(p)

    def negative(value: mpf, total_count: mpf, p: mpf, q: mpf) -> mpf:
        gammas = mp.loggamma(value + total_count) - mp.loggamma(total_count)
        return gammas + _times_log(value, p) + total_count * mp.log(q)

    ends = ({"probs": 0.0, "value": 0.0}, {"probs": 1.0, "value": 1.0})
    odds = tuple(
        {"logits": logit, "value": y}
        for logit, y in ((1e4, 1.0), (-1e4, 0.0), (-INF, 0.0), (20.0, 1.0), (9.0, 1.0), (0.0, 1.0))
    )
    coin_edges = (*ends, {"probs": 1e-30, "value": 1.0}, {"probs": 1 - 1e-16, "value": 0.0}, *odds)
    return [
        *_both("Bernoulli", distributions.Bernoulli, coin,
               lambda d, given: d.count(torch.ones(d.points)).double(),
               edges=coin_edges, whole=("value",)),
        *_both("Binomial", distributions.Binomial, coin,
               lambda d, given: d.count(given["total_count"]),
               lambda d: {"total_count": d.log(0, 3).floor()},
               edges=(*({**edge, "total_count": 5.0, "value": 5 * edge["value"]}
                        for edge in coin_edges),),
               whole=("value", "total_count"), fixed=("total_count",)),
        *_both("Geometric", distributions.Geometric, geometric,
               lambda d, given: d.log(-1, 4).floor(), whole=("value",),
               edges=({"probs": 1.0, "value": 0.0}, {"logits": 1e4, "value": 0.0})),
        *_both("NegativeBinomial", distributions.NegativeBinomial, negative,
               lambda d, given: d.log(-1, 4).floor(),
               lambda d: {"total_count": d.log(-3, 6)}, whole=("value",),
               edges=({"probs": 0.0, "total_count": 3.0, "value": 0.0},)),
    ]  # fmt: skip


def _around(d: Draws, loc: Tensor, scale: Tensor) -> Tensor:
    """Outcomes from 1e-3 to 1e2 scales away."""
    return loc + scale * d.signed(-3, 2)


def _located(label: str, density: Callable[[mpf], mpf], low: float = -3, high: float = 2) -> Family:
    """A family of location and scale from the density of the standardised outcome."""

    def full(value: mpf, loc: mpf, scale: mpf) -> mpf:
        return density((value - loc) / scale) - mp.log(scale)

    def draw(d: Draws) -> Columns:
        loc, scale = d.signed(-3, 4), d.log(*SIZE)
        return {"loc": loc, "scale": scale, "value": loc + scale * d.signed(low, high)}

    edges = (
        {"loc": 0.0, "scale": 1e-30, "value": 3e-30},
        {"loc": 0.0, "scale": 1e30, "value": -2e30},
        {"loc": 1.0, "scale": 0.5, "value": 1.25},
    )
    return Family(label, getattr(distributions, label), full, draw, edges)


def _lines() -> list[Family]:
    def student(value: mpf, df: mpf, loc: mpf, scale: mpf) -> mpf:
        u = (value - loc) / scale
        gammas = mp.loggamma((df + 1) / 2) - mp.loggamma(df / 2)
        return gammas - mp.log(df) / 2 - (df + 1) / 2 * mp.log1p(u * u / df) - mp.log(scale)

    def student_draw(d: Draws) -> Columns:
        loc, scale = d.signed(-3, 4), d.log(*SIZE)
        return {"df": d.log(-3, 6), "loc": loc, "scale": scale, "value": _around(d, loc, scale)}

    def log_normal(value: mpf, loc: mpf, scale: mpf) -> mpf:
        return -(((mp.log(value) - loc) / scale) ** 2) / 2 - mp.log(scale)

    def log_normal_draw(d: Draws) -> Columns:
        loc, scale = d.signed(-2, 1), d.log(-2, 0.5)
        value = torch.exp(loc + scale * d.signed(-2, 0.7))
        return {"loc": loc, "scale": scale, "value": value}

    def von_mises(value: mpf, loc: mpf, concentration: mpf) -> mpf:
        return concentration * mp.cos(value - loc) - mp.log(mp.besseli(0, concentration))

    def von_mises_draw(d: Draws) -> Columns:
        concentration, loc = d.log(-3, 4), d.uniform(-3, 3)
        spread = d.signed(-2, 0.5) / concentration.clamp(min=1).sqrt()
        return {"loc": loc, "concentration": concentration, "value": loc + spread}

    t_edges = tuple(
        {"df": df, "loc": 0.0, "scale": 1.0, "value": value}
        for df in (1e-3, 1e6) for value in (0.25, 1.5, 30.0)
    )  # fmt: skip
    return [
        _located("Normal", lambda u: -u * u / 2),
        _located("Laplace", lambda u: -abs(u)),
        _located("Cauchy", lambda u: -mp.log1p(u * u), high=6),
        _located("Gumbel", lambda u: -u - mp.exp(-u), high=0.7),
        Family("StudentT", distributions.StudentT, student, student_draw, t_edges),
        Family("LogNormal", distributions.LogNormal, log_normal, log_normal_draw),
        Family("VonMises", distributions.VonMises, von_mises, von_mises_draw,
               ({"loc": 0.0, "concentration": 3.76, "value": 0.5},)),
    ]  # fmt: skip


def _gammas() -> list[Family]:
    def gamma(value: mpf, concentration: mpf, rate: mpf) -> mpf:
        a, b = concentration, rate
        return a * mp.log(b) + (a - 1) * mp.log(value) - b * value - mp.loggamma(a)

    def inverse_gamma(value: mpf, concentration: mpf, rate: mpf) -> mpf:
        return gamma(1 / value, concentration, rate) - 2 * mp.log(value)

    def typical(d: Draws, shape: Tensor) -> Tensor:
        """A gamma of this shape and mean 1, within three standard deviations, never too far."""
        return torch.exp(d.uniform(-3, 3) / shape.clamp(min=0.2).sqrt())

    def gamma_draw(d: Draws, power: int = 1) -> Columns:
        a, b = d.log(-3, 6), d.log(-4, 4)
        return {"concentration": a, "rate": b, "value": (a / b * typical(d, a)) ** power}

    def chi_square(value: mpf, df: mpf) -> mpf:
        return gamma(value, df / 2, mpf(1) / 2)

    def chi_square_draw(d: Draws) -> Columns:
        df = d.log(-3, 6)
        return {"df": df, "value": df * typical(d, df / 2)}

    def fisher(value: mpf, df1: mpf, df2: mpf) -> mpf:
        beta = mp.loggamma(df1 / 2) + mp.loggamma(df2 / 2) - mp.loggamma((df1 + df2) / 2)
        shape = df1 / 2 * mp.log(df1 / df2) + (df1 / 2 - 1) * mp.log(value)
        return shape - (df1 + df2) / 2 * mp.log1p(df1 * value / df2) - beta

    def fisher_draw(d: Draws) -> Columns:
        df1, df2 = d.log(-3, 6), d.log(-3, 6)
        return {"df1": df1, "df2": df2, "value": typical(d, df1 / 2) / typical(d, df2 / 2)}

    small, large = {"concentration": 1e-3, "rate": 1.0}, {"concentration": 1e6, "rate": 1.0}
    return [
        Family("Gamma", distributions.Gamma, gamma, gamma_draw,
               ({**small, "value": 1e-3}, {**large, "value": 1.001e6})),
        Family("InverseGamma", distributions.InverseGamma, inverse_gamma,
               lambda d: gamma_draw(d, -1),
               ({**small, "value": 9e2}, {**large, "value": 1.001e-6})),
        Family("Chi2", distributions.Chi2, chi_square, chi_square_draw,
               ({"df": 1e-3, "value": 1e-3}, {"df": 1e6, "value": 1.001e6})),
        Family("FisherSnedecor", distributions.FisherSnedecor, fisher, fisher_draw,
               ({"df1": 1e-3, "df2": 1e6, "value": 0.5}, {"df1": 1e6, "df2": 1e-3, "value": 2.0})),
    ]  # fmt: skip


def _positive() -> list[Family]:
    def poisson(value: mpf, rate: mpf) -> mpf:
        return _times_log(value, rate) - rate

    def poisson_draw(d: Draws) -> Columns:
        rate = d.log(-6, 6)
        return {"rate": rate, "value": (rate * d.log(-0.3, 0.5)).round()}

    def weibull(value: mpf, scale: mpf, concentration: mpf) -> mpf:
        k, ratio = concentration, value / scale
        return mp.log(k / scale) + (k - 1) * mp.log(ratio) - ratio**k

    def weibull_draw(d: Draws) -> Columns:
        scale, k = d.log(*SIZE), d.log(-2, 2)
        return {"scale": scale, "concentration": k, "value": scale * d.log(-2, 0.5) ** (1 / k)}

    def scaled(label: str, density: Callable[[mpf], mpf]) -> Family:
        def draw(d: Draws) -> Columns:
            scale = d.log(*SIZE)
            return {"scale": scale, "value": scale * d.log(-2, 1)}

        def full(value: mpf, scale: mpf) -> mpf:
            return density(value / scale) - mp.log(scale)

        edges = ({"scale": 1e-30, "value": 2e-30}, {"scale": 1e30, "value": 3e30})
        return Family(label, getattr(distributions, label), full, draw, edges)

    def exponential_draw(d: Draws) -> Columns:
        rate = d.log(*SIZE)
        return {"rate": rate, "value": d.log(-2, 1) / rate}

    return [
        Family("Poisson", distributions.Poisson, poisson, poisson_draw,
               ({"rate": 0.0, "value": 0.0}, {"rate": 1e-30, "value": 1.0}), whole=("value",)),
        Family("Exponential", distributions.Exponential,
               lambda value, rate: mp.log(rate) - rate * value, exponential_draw),
        Family("Weibull", distributions.Weibull, weibull, weibull_draw),
        scaled("HalfNormal", lambda u: -u * u / 2),
        scaled("HalfCauchy", lambda u: -mp.log1p(u * u)),
    ]  # fmt: skip


def _bounded() -> list[Family]:
    def beta(value: mpf, concentration1: mpf, concentration0: mpf) -> mpf:
        a, b = concentration1, concentration0
        normaliser = mp.loggamma(a) + mp.loggamma(b) - mp.loggamma(a + b)
        return (a - 1) * mp.log(value) + (b - 1) * mp.log(1 - value) - normaliser

    def beta_draw(d: Draws) -> Columns:
        a, b = d.log(-3, 6), d.log(-3, 6)
        mean = a / (a + b)
        value = mean ** torch.exp(d.uniform(-1, 1) / a.clamp(min=1).sqrt())
        return {"concentration1": a, "concentration0": b, "value": value}

    def kumaraswamy(value: mpf, concentration1: mpf, concentration0: mpf) -> mpf:
        a, b = concentration1, concentration0
        return mp.log(a * b) + (a - 1) * mp.log(value) + (b - 1) * mp.log(1 - value**a)

    def kumaraswamy_draw(d: Draws) -> Columns:
        return {
            "concentration1": d.log(-3, 3),
            "concentration0": d.log(-3, 3),
            "value": d.probability(),
        }

    def continuous(value: mpf, p: mpf, q: mpf) -> mpf:
        logit = mp.log(p / q)
        return logit * value - mp.log(mp.expm1(logit) / logit)

    def relaxed(value: mpf, temperature: mpf, p: mpf, q: mpf) -> mpf:
        distance = mp.log(p / q) - temperature * mp.log(value / (1 - value))
        return distance - 2 * mp.log1p(mp.exp(distance))

    def uniform_draw(d: Draws) -> Columns:
        low, width = d.signed(-2, 3), d.log(-3, 3)
        return {"low": low, "high": low + width, "value": low + width * d.uniform(0.01, 0.99)}

    def pareto_draw(d: Draws) -> Columns:
        scale, alpha = d.log(*SIZE), d.log(-2, 2)
        return {"scale": scale, "alpha": alpha, "value": scale * (1 + d.log(-3, 1))}

    def generalized(value: mpf, loc: mpf, scale: mpf, concentration: mpf) -> mpf:
        z, shape = (value - loc) / scale, concentration
        tail = (1 + 1 / shape) * mp.log1p(shape * z) if shape else z
        return -tail - mp.log(scale)

    def generalized_draw(d: Draws) -> Columns:
        loc, scale, shape = d.signed(-2, 2), d.log(-3, 3), d.signed(-9, 0)
        reach = torch.where(shape < 0, -0.9 / shape, INF)
        z = torch.minimum(d.log(-3, 2), reach)
        return {"loc": loc, "scale": scale, "concentration": shape, "value": loc + scale * z}

    return [
        Family("Beta", distributions.Beta, beta, beta_draw,
               ({"concentration1": 1e-3, "concentration0": 1e6, "value": 1e-9},)),
        Family("Kumaraswamy", distributions.Kumaraswamy, kumaraswamy, kumaraswamy_draw),
        *_both("ContinuousBernoulli", distributions.ContinuousBernoulli, continuous,
               lambda d, given: d.uniform(0, 1),
               edges=({"logits": 0.0, "value": 0.25}, {"logits": 1e-8, "value": 0.75})),
        *_both("RelaxedBernoulli", distributions.RelaxedBernoulli, relaxed,
               lambda d, given: d.probability(), lambda d: {"temperature": d.log(-1, 1)},
               fixed=("temperature",)),
        Family("Uniform", distributions.Uniform,
               lambda value, low, high: -mp.log(high - low), uniform_draw),
        Family("Pareto", distributions.Pareto,
               lambda value, scale, alpha: mp.log(alpha) + alpha * mp.log(scale)
               - (alpha + 1) * mp.log(value), pareto_draw),
        Family("GeneralizedPareto", distributions.GeneralizedPareto, generalized, generalized_draw,
               ({"loc": 0.0, "scale": 1.0, "concentration": 0.0, "value": 1.5},)),
    ]  # fmt: skip


SCALAR: list[Family] = [*_coins(), *_lines(), *_gammas(), *_positive(), *_bounded()]
