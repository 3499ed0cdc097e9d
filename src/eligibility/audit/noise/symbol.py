"""Random numbers that are not drawn yet: how each will be computed from its base number.

``-log(-log(u)) + z`` is known as a chain of monotone operations on a uniform number u, so its
distribution function is known too: that of u, at the chain's inverse.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from eligibility.audit.arrays import Array, Integers


@dataclass(frozen=True)
class Operation:
    """A strictly monotone function x ↦ f(x, c), for each c.

    Attributes:
        forward: f.
        inverse: Of x, for the same c.
        sign: Of c: +1 where f increases, −1 where it decreases.
        positive: Whether x must be positive.
    """

    forward: Callable[[Any, Any], Any]
    inverse: Callable[[Any, Any], Any]
    sign: Callable[[Any], Any] = lambda c: 1.0
    positive: bool = False


def _sigmoid(x: Any) -> Any:
    return 0.5 * (1.0 + np.tanh(0.5 * x))


def _logit(x: Any) -> Any:
    return np.log(x) - np.log1p(-x)


OPERATIONS = {
    "add": Operation(lambda x, c: x + c, lambda y, c: y - c),
    "mul": Operation(lambda x, c: x * c, lambda y, c: y / c, lambda c: np.sign(c)),
    "log": Operation(lambda x, c: np.log(x), lambda y, c: np.exp(y), positive=True),
    "exp": Operation(
        lambda x, c: np.exp(x), lambda y, c: np.where(y > 0, np.log(np.maximum(y, 0)), -np.inf)
    ),
    "log1p": Operation(lambda x, c: np.log1p(x), lambda y, c: np.expm1(y)),
    "reciprocal": Operation(
        lambda x, c: 1.0 / x,
        lambda y, c: np.where(y > 0, 1.0 / y, np.inf),
        lambda c: -1.0,
        positive=True,
    ),
    "logit": Operation(lambda x, c: _logit(x), lambda y, c: _sigmoid(y), positive=True),
    "sigmoid": Operation(lambda x, c: _sigmoid(x), lambda y, c: _logit(np.clip(y, 0, 1))),
    "tanh": Operation(lambda x, c: np.tanh(x), lambda y, c: np.arctanh(np.clip(y, -1, 1))),
    "sqrt": Operation(lambda x, c: np.sqrt(x), lambda y, c: np.maximum(y, 0) ** 2, positive=True),
    # beyond the bound nothing is known but the side: its inverse is at infinity
    "clamp_min": Operation(np.maximum, lambda y, c: np.where(y > c, y, -np.inf)),
    "clamp_max": Operation(np.minimum, lambda y, c: np.where(y < c, y, np.inf)),
}


Chain = tuple[tuple[str, Any], ...]  # names of operations, each with its c
# What functions of one argument do, by name; and what they do that take a constant next to noise.
UNARY: dict[str, Chain] = {
    **{
        name: ((name, 0.0),)
        for name in ("log", "exp", "log1p", "sqrt", "reciprocal", "logit", "sigmoid", "tanh")
    },
    **dict.fromkeys(("neg", "negative"), (("mul", -1.0),)),
    "log2": (("log", 0.0), ("mul", 1.0 / np.log(2.0))),
    "positive": (),
}
_COMBINED: dict[str, Callable[[Any], Chain]] = {
    "add": lambda c: (("add", c),),
    "sub": lambda c: (("add", -c),),
    "rsub": lambda c: (("mul", -1.0), ("add", c)),
    "mul": lambda c: (("mul", c),),
    "div": lambda c: (("mul", 1.0 / c),),
    "rdiv": lambda c: (("reciprocal", 0.0), ("mul", c)),
}
# What is done to uniform numbers to make others of them.
EXPONENTIAL: Chain = (("log", 0.0), ("mul", -1.0))
GUMBEL = EXPONENTIAL * 2


@dataclass(frozen=True)
class Symbol:
    """An array of random numbers that are not drawn yet.

    Attributes:
        ids: [*shape] which base number each is made of.
        normal: Whether the base numbers are standard normal; else uniform on (0, 1).
        chain: What is done to them: names of ``OPERATIONS`` and their c, an array of this shape.
    """

    ids: Integers
    normal: bool
    chain: tuple[tuple[str, Array], ...] = ()

    def then(self, name: str, constant: Any = 0.0) -> Symbol | None:
        """With one operation more; None where it would not be monotone."""
        operation = OPERATIONS[name]
        constant = np.asarray(constant, dtype=np.float64)
        if name == "mul" and not np.all(constant):
            return None
        if operation.positive and self._lowest() < 0:
            return None
        shape = np.broadcast_shapes(self.ids.shape, constant.shape)
        chain = tuple((known, np.broadcast_to(c, shape)) for known, c in self.chain)
        ids = np.broadcast_to(self.ids, shape)
        return replace(self, ids=ids, chain=(*chain, (name, np.broadcast_to(constant, shape))))

    def chained(self, chain: Chain) -> Symbol | None:
        """With several operations more."""
        result: Symbol | None = self
        for name, constant in chain:
            result = None if result is None else result.then(name, constant)
        return result

    def combined(self, operation: str, constant: Array) -> Symbol | None:
        """noise ∘ constant, or constant ∘ noise for "rsub" and "rdiv"."""
        if operation in ("div", "rdiv") and not np.all(constant):
            return None
        return self.chained(_COMBINED[operation](constant))

    def take(self, positions: Integers) -> Symbol:
        """The elements at flat ``positions`` [*any shape]."""
        chain = tuple((name, c.reshape(-1)[positions]) for name, c in self.chain)
        return replace(self, ids=self.ids.reshape(-1)[positions], chain=chain)

    def values(self, base: Array, start: int = 0) -> Array:
        """What the chain, from operation ``start`` on, makes of ``base`` numbers."""
        with np.errstate(all="ignore"):
            for name, constant in self.chain[start:]:
                base = OPERATIONS[name].forward(base, constant)
        return base

    def thresholds(self, values: Array) -> tuple[Array, Array]:
        """The u with {element < value} = {U < u}, or {U > u} where the second is −1."""
        sign = np.ones(self.ids.shape)
        with np.errstate(all="ignore"):
            for name, constant in reversed(self.chain):
                operation = OPERATIONS[name]
                values = operation.inverse(values, constant)
                sign = sign * operation.sign(constant)
        inside = _normal_cdf(values) if self.normal else values
        return np.clip(np.nan_to_num(inside, nan=0.0), 0.0, 1.0), sign

    def quantiles(self, uniform: Array) -> Array:
        """The elements whose base number has the distribution function ``uniform``."""
        return self.values(_normal_quantile(uniform) if self.normal else uniform)

    def affine(self) -> tuple[Array, Array, int]:
        """The mean and factor of the chain's leading linear part, and how long that is."""
        loc, scale = np.zeros(self.ids.shape), np.ones(self.ids.shape)
        for length, (name, constant) in enumerate(self.chain):
            if name == "add":
                loc = loc + constant
            elif name == "mul":
                loc, scale = loc * constant, scale * constant
            else:
                return loc, scale, length
        return loc, scale, len(self.chain)

    def _lowest(self) -> float:
        """The least value that any element can take, nearly."""
        ends = [self.quantiles(np.full(self.ids.shape, u)) for u in (1e-300, 1.0 - 2.0**-53)]
        return float(np.nanmin(ends)) if self.ids.size else 0.0


def joined(symbols: list[Symbol]) -> Symbol | None:
    """One flat symbol of several, if the same was done to all."""
    first = symbols[0]
    names = [name for name, _ in first.chain]
    for other in symbols[1:]:
        if other.normal != first.normal or [name for name, _ in other.chain] != names:
            return None
    ids = np.concatenate([symbol.ids.reshape(-1) for symbol in symbols])
    chain = tuple(
        (name, np.concatenate([symbol.chain[i][1].reshape(-1) for symbol in symbols]))
        for i, name in enumerate(names)
    )
    return Symbol(ids, first.normal, chain)


def _normal_cdf(values: Array) -> Array:
    cdf: Array = torch.special.ndtr(torch.from_numpy(np.ascontiguousarray(values))).numpy()
    return cdf


def _normal_quantile(uniform: Array) -> Array:
    found: Array = torch.special.ndtri(torch.from_numpy(np.ascontiguousarray(uniform))).numpy()
    return found


def winning_probabilities(symbol: Symbol, low: Array, high: Array) -> Array:
    """The probability of each of K independent numbers that it is the largest, [K].

    P(k) = ∫₀¹ Π_{j≠k} F_j(T_k(v)) dv, with T_k the quantile and F_j the distribution function of
    numbers whose base is uniform on [low, high]. The double exponential rule (Takahasi & Mori 1974)
    takes it to rounding, as the integrand is smooth between the ends; for Gumbel noise it is the
    softmax.

    Args:
        symbol: [K].
        low: [K] what is known of each base number's distribution function: it is above this.
        high: [K] and below this.
    """
    count = len(symbol.ids)
    probs = np.empty(count)
    for k in range(count):
        mine = symbol.take(np.full(len(_NODES), k))
        values = mine.quantiles(low[k] + (high[k] - low[k]) * _NODES)
        product = np.ones(len(_NODES))
        for j in range(count):
            if j != k:
                at, sign = symbol.take(np.full(len(_NODES), j)).thresholds(values)
                share = np.clip((at - low[j]) / (high[j] - low[j]), 0.0, 1.0)
                product *= np.where(sign > 0, share, 1.0 - share)
        probs[k] = _WEIGHTS @ product
    return probs


def _double_exponential() -> tuple[Array, Array]:
    """Nodes and weights on (0, 1)."""
    step = 1.0 / 24.0
    t = np.arange(-4.0, 4.0 + step / 2, step)
    inner = 0.5 * np.pi * np.sinh(t)
    nodes = 1.0 / (1.0 + np.exp(-2.0 * inner))
    weights = step * 0.5 * np.pi * np.cosh(t) * 0.5 / np.cosh(inner) ** 2
    keep = (nodes < 1.0) & (nodes > 0.0)
    return nodes[keep], weights[keep]


_NODES, _WEIGHTS = _double_exponential()
