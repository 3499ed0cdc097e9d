"""What a loss was read to be, as a formula for the weight of a token."""

from __future__ import annotations

import math
from collections.abc import Mapping

from eligibility.audit.language.laws import BOUND, NUMBERED
from eligibility.audit.language.measured import Measured
from eligibility.audit.language.reading import Reading

_REWARDS = {
    "own": "reward",
    "group": "mean of the group",
    "batch": "mean of the batch",
    "tokens": "mean over the batch's tokens",
    "tokens of group means": "mean of the groups' means over the batch's tokens",
    "group tokens": "mean over the group's tokens",
    NUMBERED: f"mean of the {NUMBERED}",
    "wrong group": "mean of the group whose number is the answer's",
}
_COUNTED = {
    "own-length": "length of the answer",
    "batch-tokens": "tokens of the batch",
    "slice-tokens": "tokens of the micro-batch",
    "group-tokens": "tokens of the group",
    "width": "width of the batch",
}
_VALUES = {
    "value": "minus a baseline of the state",
    "gae": "minus the values of the state and of those after it, as in generalised advantages",
}
# Deviations of rewards, up to the factor between n and n − 1 rows.
_OF_ROWS = ("group", "batch", "batch of the centred", NUMBERED)
_NOISE = 1e-6  # of the largest coefficient, where a loss is in single precision
_ROUND = 1e-3  # relative error of a round number that is measured


def rule_of(measured: Measured) -> str:
    """The reading as a formula, what else the loss has after it; "" where nothing was read."""
    reading = measured.reading
    if reading is None:
        return ""
    regularisers, terms = measured.regularisers, dict(measured.terms)
    constant = -terms.pop("k1") if measured.has_constant_baseline else 0.0
    said = [_weight(measured, reading, constant)]
    if reading.selected:
        bound = f" of {reading.bound:.4g}" if BOUND in reading.selected else ""
        said = [f"only some answers are trained on: {reading.selected}{bound}"]
    if reading.rewards != "its own":
        said.append(f"the rewards {reading.rewards}")
    if reading.divisor.startswith("ended"):
        said.append("answers that were cut off weigh 0")
    if reading.gate.kind != "none":
        said.append(str(reading.gate))
    if reading.pattern != "all":
        said.append(reading.pattern)
    if regularisers is not None:
        least = _NOISE * max(map(abs, terms.values()), default=0.0)
        said += [
            f"{_signed(value)} × {name}" for name, value in terms.items() if abs(value) > least
        ]
        said += [_VALUES[kind]] if (kind := regularisers.baseline) else []
    return "; ".join(said)


def _weight(measured: Measured, reading: Reading, constant: float) -> str:
    """The weight's formula: rewards and means, then what divides and what multiplies them."""
    scale, epsilon, times = _deviation(measured, reading)
    given = {_REWARDS[key]: value * times for key, value in reading.coefficients.items() if value}
    formula = ""
    if scale != "none":
        divisor = f"deviation of the {scale}"
        formula += f" / ({divisor} + {epsilon:.1e})" if epsilon > 1e-12 else f" / {divisor}"
    for part in reading.divisor.split(", "):
        if part not in ("constant", "ended"):
            counted = next((key for key in _COUNTED if part.startswith(key)), part)
            formula += f" / {_COUNTED.get(counted, part)}{part.removeprefix(counted)}"
    if reading.decay != 1.0:
        formula += f" × {reading.decay:.6g} for each token after it"
    if reading.factor != "one":
        formula += f" × {reading.factor}"
    return f"weight of a token = {_sum(given, constant, alone=not formula)}{formula}"


def _sum(given: Mapping[str, float], constant: float, alone: bool) -> str:
    """`0.25 × (reward − mean of the group)`: a common size is said once.

    Where it is not ``alone``, what follows divides or multiplies all of it.
    """
    sizes = {f"{abs(value):.4g}" for value in given.values()}
    if constant or len(sizes) != 1 or len(given) == 1:
        parts = [f"{_signed(value)} × {name}" for name, value in given.items()]
        parts += [_signed(constant)] if constant else []
        total = " ".join(parts).removeprefix("+ ") or "0"
        return total if alone or len(parts) < 2 else f"({total})"
    first, *others = given.items()
    sign = 1.0 if first[1] > 0 else -1.0
    inner = [f"{'+' if value * sign > 0 else '−'} {name}" for name, value in others]
    return f"{_signed(first[1]).removeprefix('+ ')} × ({' '.join([first[0], *inner])})"


def _signed(value: float) -> str:
    return f"{'+' if value > 0 else '−'} {abs(value):.4g}"


def _deviation(measured: Measured, reading: Reading) -> tuple[str, float, float]:
    """The name of what divides, what is added to it, and what the coefficients are multiplied by.

    Deviations of n rows with n and with n − 1 in the denominator differ by a factor. The one of
    which a round number is added, like 1e-4, is the program's.
    """
    language = measured.observed.language
    whole = language.group_size * language.prompts
    rows = {"group": language.group_size, NUMBERED: language.prompts}.get(reading.scale, whole)
    epsilon = reading.epsilon
    if reading.scale not in _OF_ROWS or rows < 2 or epsilon <= 0.0 or _is_round(epsilon):
        return reading.scale, epsilon, 1.0
    times = math.sqrt(rows / (rows - 1))
    if not _is_round(epsilon * times):
        return reading.scale, epsilon, 1.0
    return f"{reading.scale} (N − 1)", epsilon * times, times


def _is_round(value: float) -> bool:
    """Whether it has one significant digit."""
    return abs(float(f"{value:.0e}") - value) <= _ROUND * value
