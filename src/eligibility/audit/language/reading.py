"""What the rewards do to the weights: one composition of laws that explains every batch."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from eligibility.audit.arrays import Array
from eligibility.audit.language.gates import NO_GATE, Gate
from eligibility.audit.language.laws import (
    COMMON_SCALES,
    DIVISORS,
    FACTORS,
    MULTIPLIERS,
    OF_NUMBERS,
    PATTERNS,
    RATIOS,
    REWARDS,
    SCALES,
    SCORED,
    SELECTED,
    UNUSUAL,
    USUAL,
    arrangements,
    baseline_columns,
)
from eligibility.audit.language.sample import Sample

# Residuals of a fit below it are rounding: of double precision, or where a loss uses single.
EXACT, EXACT_IN_SINGLE = 1e-8, 1e-5
_SEARCHED = 60  # batches on which compositions are tried before all are looked at
_NEWTON = 12  # steps for the ε that is added to a standard deviation


@dataclass(frozen=True)
class Reading:
    """The composition of a token's weight.

    Attributes:
        coefficients: Coefficients of the baseline's columns, by name.
        divisor: Key of `DIVISORS`.
        scale: Key of `SCALES`.
        epsilon: What is added to the deviation.
        pattern: Key of `PATTERNS`.
        factor: Key of `FACTORS` or `RATIOS`.
        scored: Key of `SCORED`.
        decay: γλ: by how much a reward counts less for each token earlier.
        gate: What becomes of ratios beyond bounds.
        rewards: Key of `REWARDS`.
        selected: Key of `SELECTED` where only some answers are trained on, else "".
        bound: Of the rewards of these answers.
        residual: ‖what is not explained‖ / ‖weights‖ over every batch.
    """

    coefficients: Mapping[str, float]
    divisor: str = "constant"
    scale: str = "none"
    epsilon: float = 0.0
    pattern: str = "all"
    factor: str = "one"
    scored: str = "taken"
    decay: float = 1.0
    gate: Gate = NO_GATE
    rewards: str = "its own"
    selected: str = ""
    bound: float = 0.0
    residual: float = 1.0


def read(sample: Sample, off_policy: bool = False, exact: float = EXACT) -> Reading | None:
    """The first composition, simple ones first, that explains the gradients of every batch.

    Args:
        sample: With the part of the gradient that changes its sign with the rewards.
        off_policy: Whether the tokens were drawn from something else than what is scored.
        exact: Residuals below it are rounding.
    """
    if not len(sample.rewards) or sample.size == 0.0:
        return None
    step = max(len(sample.rewards) // _SEARCHED, 1)
    few = sample.take(np.arange(0, len(sample.rewards), step))
    shapes = list(_shapes(few, off_policy, exact))
    weights = {name: project(few, SCORED[name](few))[0] for name in {s.scored for s in shapes}}
    ways = [*itertools.product(arrangements(sample), (USUAL, UNUSUAL))]
    ways += [("its own", OF_NUMBERS)] if len(ways) > 2 else []
    for rewards, means in ways:
        arranged = REWARDS[rewards](few)
        bases = baseline_columns(arranged, means)
        for shape in shapes:
            shape = replace(shape, rewards=rewards)
            found = _fit(arranged, shape, weights[shape.scored], bases)
            if found.residual < exact:
                found = _fitted(sample, shape, means)
                if found.residual < exact:
                    return found
    return None


def _shapes(sample: Sample, off_policy: bool, exact: float) -> Iterator[Reading]:
    """Compositions in the order in which they are tried."""
    factors = ["one", *RATIOS, *FACTORS] if off_policy else [*FACTORS]
    for scored, factor in itertools.product(SCORED, factors):
        if scored != "taken" and factor != "one":
            continue
        scales = SCALES if scored == "taken" and factor == "one" else COMMON_SCALES
        if project(sample, SCORED[scored](sample))[1] > exact:
            continue
        pattern = _pattern(sample, scored, exact)
        decay = _decay(sample, exact) if scored == "taken" and factor == "one" else 1.0
        for scale, divisor in itertools.product(scales, DIVISORS):
            yield Reading({}, divisor, scale, 0.0, pattern, factor, scored, decay)


def _decay(sample: Sample, exact: float) -> float:
    """The weight of each token as a share of the next one's, where that is one number below 1."""
    weights, _ = project(sample, sample.scores)
    pairs = sample.mask[..., 1:]
    earlier, later = weights[..., :-1][pairs], weights[..., 1:][pairs]
    if not later.any():
        return 1.0
    share = float((earlier * later).sum() / (later**2).sum())
    left = float(np.linalg.norm(earlier - share * later))
    one_number = left <= exact * float(np.linalg.norm(later))
    return share if one_number and exact < share < 1.0 - exact else 1.0


def _pattern(sample: Sample, scored: str, exact: float) -> str:
    """The pattern that leaves out the most tokens of those whose gradients are always 0."""
    weights, _ = project(sample, SCORED[scored](sample))
    size = np.abs(weights[sample.mask]).max()
    silent = np.abs(weights) <= exact * size
    left_out = {name: sample.mask & (pattern(sample) == 0) for name, pattern in PATTERNS.items()}
    fitting = [name for name, out in left_out.items() if silent[out].all()]
    return max(fitting, key=lambda name: left_out[name].sum())


def pattern_alone(sample: Sample) -> str:
    """The pattern of the tokens that are never trained on, whatever the rest of the weight is."""
    return _pattern(sample, "taken", EXACT) if sample.size else "all"


def _fitted(sample: Sample, shape: Reading, means: str) -> Reading:
    """A composition with the coefficients and the ε that fit best."""
    sample = REWARDS[shape.rewards](sample)
    weights, _ = project(sample, SCORED[shape.scored](sample))
    return _fit(sample, shape, weights, baseline_columns(sample, means))


def _fit(sample: Sample, shape: Reading, weights: Array, bases: Mapping[str, Array]) -> Reading:
    """As `_fitted`, with the weights and the baselines of the sample as it is arranged."""
    law = _law(sample, shape)
    deviation = SCALES[shape.scale](sample)
    if shape.scale == "none":
        return _linear(sample, shape, weights, law, bases, np.ones_like(deviation))
    epsilon = 0.0
    found = shape
    for _ in range(_NEWTON):
        inverse = _inverse(deviation, epsilon)
        found = replace(_linear(sample, shape, weights, law, bases, inverse), epsilon=epsilon)
        if found.residual < 1e-12:
            break
        if found.residual > 0.3:
            return found
        # the slope of the prediction by ε tells how far ε is off
        advantage = sum(found.coefficients[name] * column for name, column in bases.items())
        slope = -(law * (advantage * inverse**2)[..., None])[sample.mask]
        missing = (weights - law * (advantage * inverse)[..., None])[sample.mask]
        if not slope.any():
            break
        columns = np.stack([*_columns(sample, law, bases, inverse), slope], axis=1)
        whole = weights[sample.mask]
        solved = np.linalg.lstsq(columns, whole, rcond=1e-11)[0]
        change = solved[-1]
        if not np.isfinite(change) or abs(change) < 1e-15 or not missing.any():
            break
        epsilon = max(epsilon + change, 0.0)
    return found


def fitted_to(sample: Sample, shape: Reading, weights: Array) -> Reading:
    """A composition of selected answers with the coefficient and the ε that fit best."""
    return _fit(sample, shape, weights, _bases(sample, shape))


def _bases(sample: Sample, reading: Reading) -> Mapping[str, Array]:
    """What an advantage is a sum of."""
    if reading.selected:
        return {"own": SELECTED[reading.selected](sample, reading.bound)}
    return baseline_columns(sample)


def _law(sample: Sample, reading: Reading) -> Array:
    """[M, B, W] what an advantage is multiplied by, at each token."""
    law = DIVISORS[reading.divisor](sample)[..., None] * PATTERNS[reading.pattern](sample)
    law = law * MULTIPLIERS[reading.factor](sample)
    if reading.decay == 1.0:
        return np.asarray(law)
    ahead = sample.lengths[..., None] - 1 - np.arange(sample.mask.shape[2])
    return np.asarray(law * reading.decay ** np.maximum(ahead, 0))


def _inverse(deviation: Array, epsilon: float) -> Array:
    """[M, B] what the division multiplies by; 0 where all rewards are equal."""
    return np.divide(1.0, deviation + epsilon, out=np.zeros_like(deviation), where=deviation > 1e-9)


def _columns(sample: Sample, law: Array, bases: Mapping[str, Array], inverse: Array) -> list[Array]:
    return [(law * (base * inverse)[..., None])[sample.mask] for base in bases.values()]


def _linear(
    sample: Sample,
    shape: Reading,
    weights: Array,
    law: Array,
    bases: Mapping[str, Array],
    inverse: Array,
) -> Reading:
    columns = np.stack(_columns(sample, law, bases, inverse), axis=1)
    wanted = weights[sample.mask]
    found = np.linalg.lstsq(columns, wanted, rcond=1e-11)[0]
    residual = float(np.linalg.norm(wanted - columns @ found) / np.linalg.norm(wanted))
    single = EXACT < residual < EXACT_IN_SINGLE  # then coefficients are known no better
    least = (EXACT_IN_SINGLE if single else 1e-7) * np.abs(found).max()
    kept = {
        name: float(value) if abs(value) > least else 0.0
        for name, value in zip(bases, found, strict=True)
    }
    return replace(shape, coefficients=kept, residual=residual)


def project(sample: Sample, scores: Array) -> tuple[Array, float]:
    """[M, B, W] weights of the scores in the gradients, and the share of what else is in these."""
    squares = (scores**2).sum(-1)
    along = (sample.ascent * scores).sum(-1)
    weights = np.divide(along, squares, out=np.zeros_like(along), where=squares > 0)
    left = (sample.ascent - weights[..., None] * scores)[sample.mask]
    return weights, float(np.linalg.norm(left)) / (sample.size or 1.0)


def predicted(sample: Sample, reading: Reading) -> Array:
    """[M, B, W, V] the gradients that a reading stands for."""
    sample = REWARDS[reading.rewards](sample)
    law = _law(sample, reading)
    bases = _bases(sample, reading)
    advantage = np.asarray(sum(v * bases[name] for name, v in reading.coefficients.items()))
    if reading.scale != "none":
        advantage = advantage * _inverse(SCALES[reading.scale](sample), reading.epsilon)
    weights = np.where(sample.mask, law * advantage[..., None], 0.0)
    weights = weights * reading.gate(sample, weights)
    return np.asarray(weights[..., None] * SCORED[reading.scored](sample))
