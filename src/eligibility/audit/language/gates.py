"""What trainers do to large and small ratios: clip, truncate or mask them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from eligibility.audit.arrays import Array, Booleans
from eligibility.audit.language.laws import MULTIPLIERS, RATIOS, TokenLaw
from eligibility.audit.language.sample import Sample

Bound = tuple[float, float]
_RARE = 1e-3  # of the largest weight: below it, kept and dropped cannot be told apart


def _extreme(sample: Sample, largest: bool) -> Array:
    """[M, B, W] the largest or the smallest token ratio of each answer, at all its tokens."""
    padding = -math.inf if largest else math.inf
    values = np.where(sample.mask, sample.log_ratio, padding)
    found = values.max(-1, keepdims=True) if largest else values.min(-1, keepdims=True)
    return np.broadcast_to(np.exp(found), values.shape)


# What is compared with a bound.
COMPARED: dict[str, TokenLaw] = {
    **RATIOS,
    "smallest ratio of the answer": lambda s: _extreme(s, largest=False),
    "largest ratio of the answer": lambda s: _extreme(s, largest=True),
    "rise of the probability, plus 1,": lambda s: 1 + np.exp(s.log_probs) - np.exp(s.drawn),
}


@dataclass(frozen=True)
class Gate:
    """What becomes of a ratio beyond its bounds.

    Attributes:
        kind: "none"; "clipped": 0 beyond a bound for an advantage that pushes further; "wrong
            side": 0 beyond a bound for one that pushes back; "truncated": the bound itself;
            "masked": 0 beyond either bound; "soft": less and less the further it is from 1.
        of: Key of `COMPARED`.
        low: Where the bound from below is: between the first ratio beyond it that the probe has and
            the last one that it keeps; 0: none.
        high: Where the bound from above is; infinite: none.
        dual: Where that for negative advantages is; infinite: none.
        steepness: Steepness of a soft gate, for positive and for negative advantages.
    """

    kind: str = "none"
    of: str = "token-ratio"
    low: Bound = (0.0, 0.0)
    high: Bound = (math.inf, math.inf)
    dual: Bound = (math.inf, math.inf)
    steepness: tuple[float, float] = (0.0, 0.0)

    def __call__(self, sample: Sample, advantages: Array) -> Array:
        """[M, B, W] what the ratio is multiplied by."""
        if self.kind == "none":
            return np.ones(sample.mask.shape)
        ratio = COMPARED[self.of](sample)
        if self.kind == "soft":
            slope = np.where(advantages > 0, *self.steepness)
            return np.asarray(np.cosh(slope * (ratio - 1) / 2) ** -2)
        low, high, dual = (math.sqrt(first * last) for first, last in self.bounds)
        if self.kind == "truncated":
            return np.asarray(np.clip(ratio, low, high) / ratio)
        if self.kind == "masked":
            return ((ratio >= low) & (ratio <= high)).astype(float)
        pushed = -advantages if self.kind == "wrong side" else advantages
        risen = (ratio <= high) | (pushed < 0)
        fallen = (ratio >= low) | (pushed > 0)
        return (risen & fallen & ((ratio <= dual) | (advantages > 0))).astype(float)

    @property
    def bounds(self) -> tuple[Bound, Bound, Bound]:
        """All three."""
        return self.low, self.high, self.dual

    def __str__(self) -> str:
        """In words."""
        if self.kind == "soft":
            rising, falling = self.steepness
            return (
                f"soft beyond 1, with steepness {rising:.3g} where the advantage is positive and "
                f"{falling:.3g} where it is negative"
            )
        names = ("below", "above", "where the advantage is negative, above")
        given = [
            f"{name} {_between(*bound)}"
            for name, bound in zip(names, self.bounds, strict=True)
            if 0 < bound[0] < math.inf
        ]
        kind = "clipped on the wrong side" if self.kind == "wrong side" else self.kind
        return f"{kind} where the {self.of} is {' or '.join(given)}"


def _between(first: float, last: float) -> str:
    exact = f"{first:.3g}" == f"{last:.3g}"
    return f"{first:.3g}" if exact else f"a bound between {first:.3g} and {last:.3g}"


NO_GATE = Gate()


@dataclass(frozen=True)
class Weighting:
    """How a token's weight depends on the ratio of the policy and what the tokens were drawn from.

    Attributes:
        factor: "one", or the key of `RATIOS` that it is multiplied by.
        gate: What becomes of ratios beyond bounds.
    """

    factor: str
    gate: Gate = NO_GATE

    def __call__(self, sample: Sample, advantages: Array) -> Array:
        """[M, B, W] what a weight is multiplied by, off policy."""
        return MULTIPLIERS[self.factor](sample) * self.gate(sample, advantages)


def read_weighting(
    sample: Sample, weights: Array, on_policy: Array, exact: float
) -> Weighting | None:
    """The weighting that turns the weights on policy into those that were measured.

    Args:
        sample: With the ratios.
        weights: [M, B, W] as they were measured.
        on_policy: [M, B, W] of the same batches where the tokens are drawn from the policy.
        exact: Shares below it are rounding.
    """
    size = np.linalg.norm(weights[sample.mask])
    if not size:
        return None
    clear = sample.mask & (np.abs(on_policy) > _RARE * np.abs(on_policy).max())
    for candidate in _candidates(sample, weights, on_policy, clear, 1e3 * exact):
        missing = weights - candidate(sample, on_policy) * on_policy
        if np.linalg.norm(missing[sample.mask]) <= exact * size:
            return candidate
    return None


def _candidates(
    sample: Sample, weights: Array, on_policy: Array, clear: Booleans, close: float
) -> Iterator[Weighting]:
    """Weightings that could be, simple ones first."""
    measured = weights[clear] / on_policy[clear]
    positive = on_policy[clear] > 0
    ratios = {name: law(sample)[clear] for name, law in COMPARED.items()}
    factors = ("one", *RATIOS)
    yield from (Weighting(factor) for factor in factors)
    for factor in RATIOS:
        gate = _truncated(measured, ratios[factor], factor, close)
        if gate is not None:
            yield Weighting(factor, gate)
        yield Weighting(factor, _soft(measured, ratios[factor], factor, positive))
    for factor in (*RATIOS, "one"):
        whole = MULTIPLIERS[factor](sample)[clear]
        kept = np.abs(measured - whole) <= close * whole
        dropped = np.abs(measured) <= close * whole
        if kept.any() and (kept | dropped).all():
            order = sorted(COMPARED, key=lambda name: name != factor)  # its own ratio first
            for of in order:
                yield from (
                    Weighting(factor, gate) for gate in _gates(of, ratios[of], kept, positive)
                )


def _truncated(measured: Array, ratio: Array, of: str, close: float) -> Gate | None:
    """The gate that replaces ratios beyond constants by these."""
    low = measured > ratio * (1 + close)
    high = measured < ratio * (1 - close)
    bounds = []
    for beyond, none in ((low, 0.0), (high, math.inf)):
        values = measured[beyond]
        if len(values) and values.max() - values.min() > close * np.abs(values).max():
            return None
        bounds.append(float(values.mean()) if len(values) else none)
    return Gate("truncated", of, *((b, b) for b in bounds)) if min(bounds[1], 1.0) > 0 else None


def _soft(measured: Array, ratio: Array, of: str, positive: Booleans) -> Gate:
    """The gate 1/cosh²: the slope of a sigmoid of the ratio."""
    left = np.sqrt(ratio / np.clip(measured, ratio * 1e-12, ratio))
    slopes = 2 * np.arccosh(left) / np.maximum(np.abs(ratio - 1), 1e-9)
    known = np.abs(ratio - 1) > 0.02  # near 1 nothing can be told
    steepness = [
        float(np.median(slopes[side & known])) if (side & known).any() else 0.0
        for side in (positive, ~positive)
    ]
    return Gate("soft", of, steepness=(steepness[0], steepness[1]))


def _gates(of: str, ratio: Array, kept: Booleans, positive: Booleans) -> Iterator[Gate]:
    """The gates that keep these tokens and drop the others."""
    for kind, upper, lower in (
        ("masked", positive | True, positive | True),
        ("clipped", positive, ~positive),
        ("wrong side", ~positive, positive),
    ):
        high = _bound(ratio[upper & kept], ratio[upper & ~kept], above=True)
        low = _bound(ratio[lower & kept], ratio[lower & ~kept], above=False)
        yield Gate(kind, of, low, high)
        if kind == "clipped":
            dual = _bound(ratio[lower & kept], ratio[lower & ~kept], above=True)
            yield Gate(kind, of, low, high, dual)


def _bound(kept: Array, dropped: Array, above: bool) -> Bound:
    """The last ratio that is kept and the first that is dropped, the smaller one first."""
    none = math.inf if above else 0.0
    edge = (kept.max() if above else kept.min()) if len(kept) else 1.0
    beyond = dropped[dropped > edge] if above else dropped[dropped < edge]
    if not len(kept):
        beyond = dropped
    if not len(beyond):
        return none, none
    other = float(beyond.min() if above else beyond.max())
    return (float(edge), other) if above else (other, float(edge))
