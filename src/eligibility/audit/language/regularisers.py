"""What no reward has a part in: divergences from a reference, entropies, and where they stand."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from eligibility.audit.arrays import Array
from eligibility.audit.language.laws import DIVISORS, PATTERNS, baseline_columns
from eligibility.audit.language.reading import EXACT, Reading
from eligibility.audit.language.sample import Sample

_TERMS = 3  # that a loss adds together
_LEAST = 1e-4  # of a reward's: where a baseline of each state explains the rest, less is rounding
Term = Callable[[Sample], Array]  # [M, B, W, V], a gradient at the logits


def _weighed(weights: Callable[[Sample], Array]) -> Term:
    return lambda s: s.scores * weights(s)[..., None]


def later(values: Array, decay: float) -> Array:
    """[M, B, W] the sum from a token on, where the next one counts ``decay`` times as much."""
    return values @ _powers(values.shape[-1], decay)


def _powers(width: int, decay: float) -> Array:
    """[W, W] at (k, t) the power k − t of ``decay``; 0 where k is before t."""
    ahead = np.arange(width)[:, None] - np.arange(width)
    return np.where(ahead >= 0, float(decay) ** np.maximum(ahead, 0), 0.0)


def _log(probs: Array) -> Array:
    return np.log(np.maximum(probs, 1e-300))


def _reverse(s: Sample) -> Array:
    """∇ KL(π‖ref) of a state by its logits."""
    difference = _log(s.probs) - _log(s.ref_probs)
    return np.asarray(s.probs * (difference - (s.probs * difference).sum(-1, keepdims=True)))


def _entropy(s: Sample) -> Array:
    """∇ H(π) of a state by its logits."""
    entropy = -(s.probs * _log(s.probs)).sum(-1, keepdims=True)
    return np.asarray(-s.probs * (_log(s.probs) + entropy))


def _own_log_probs(s: Sample) -> Array:
    return np.where(s.mask, s.log_probs, 0.0)


# The gradient of each term that people add to a loss or to a reward, per token; the sign is that of
# an addition to the loss, or of a subtraction from the reward.
TERMS: dict[str, Term] = {
    "k1": _weighed(lambda s: np.ones(s.mask.shape)),
    "k2": _weighed(lambda s: s.log_ratio_to_ref),
    "k3": _weighed(lambda s: 1.0 - np.exp(-s.log_ratio_to_ref)),
    "k3 of the inverse ratio": _weighed(lambda s: np.exp(s.log_ratio_to_ref) - 1.0),
    "ratio times k2": _weighed(lambda s: s.log_ratio_to_ref + s.log_ratio_to_ref**2 / 2),
    "absolute": _weighed(lambda s: np.sign(s.log_ratio_to_ref)),
    "exact reverse": _reverse,
    "exact forward": lambda s: s.probs - s.ref_probs,
    "exact entropy": _entropy,
    "log-probability": _weighed(_own_log_probs),
}
# Terms of a whole answer, which a baseline is subtracted from as from a reward.
IN_REWARD: dict[str, Callable[[Sample], Array]] = {
    "k1 in the reward": lambda s: s.log_ratio_to_ref,
    "k2 in the reward": lambda s: s.log_ratio_to_ref**2 / 2,
    "k3 in the reward": lambda s: np.exp(-s.log_ratio_to_ref) - 1 + s.log_ratio_to_ref,
    "log-probability in the reward": _own_log_probs,
}
FROM_EACH_TOKEN = ", from each token on"  # of a term of a reward, not of the whole answer

# The named direction that a term's expected gradient is; that of k1 in the loss is 0.
DIRECTION_OF = {
    "k2": "kl-states",
    "exact reverse": "kl-states",
    "k3": "kl-forward",
    "exact forward": "kl-forward",
    "exact entropy": "entropy-states",
    "log-probability": "entropy-states",
    "k1 in the reward": "kl-reverse",
    f"k1 in the reward{FROM_EACH_TOKEN}": "kl-reverse",
    "log-probability in the reward": "entropy",
    f"log-probability in the reward{FROM_EACH_TOKEN}": "entropy",
}


@dataclass(frozen=True)
class Regularisers:
    """The terms that explain the part of the gradient in which no reward has a part.

    Attributes:
        coefficients: The coefficient of each term that takes part, as an addition to the loss or a
            subtraction from the reward, before the divisor.
        divisor: Key of `DIVISORS`.
        residual: ‖what is not explained‖ / ‖that part‖.
        baseline: What is needed as well: "value", a weight of each state, as that of a critic;
            "gae", such values in generalised advantages; or "".
    """

    coefficients: Mapping[str, float]
    divisor: str
    residual: float
    baseline: str = ""


def read_regularisers(
    sample: Sample, reading: Reading | None, exact: float = EXACT
) -> Regularisers | None:
    """The terms, with the divisor of the reading if it fits, else with another; None: no fit.

    A baseline of each state is only looked for where the terms alone do not fit.
    """
    own = reading.divisor if reading else "constant"
    decay = reading.decay if reading else 1.0
    values = {"": None, "value": state_values(sample, 1.0)}
    if decay != 1.0:
        values["gae"] = state_values(sample, decay)
    for baseline, divisor in itertools.product(values, dict.fromkeys((own, *DIVISORS))):
        found = _fit(sample, reading, divisor, exact, values[baseline])
        if found.residual < exact:
            return replace(found, baseline=baseline)
    return None


def _fit(
    sample: Sample, reading: Reading | None, divisor: str, exact: float, values: Array | None
) -> Regularisers:
    columns = _columns(sample, reading, divisor)
    matrix = np.stack([column[sample.mask].reshape(-1) for column in columns.values()], axis=1)
    wanted = sample.ascent[sample.mask].reshape(-1)
    free = np.zeros((len(wanted), 0))
    if values is not None:
        scores = (_law(sample, reading, divisor) * sample.scores)[sample.mask]
        free = (scores[..., None] * values[:, None, :]).reshape(len(wanted), -1)
    chosen, found, residual = _fewest(matrix, wanted, exact, free)
    names = list(columns)
    coefficients = {names[i]: float(v) for i, v in zip(chosen, found, strict=True)}
    reward = abs(reading.coefficients.get("own", 0.0)) if reading else 0.0
    if values is not None and (np.abs(found) < _LEAST * reward).all():
        coefficients = {}
    return Regularisers(coefficients, divisor, residual)


def _law(sample: Sample, reading: Reading | None, divisor: str) -> Array:
    """[M, B, W, 1] what every term is multiplied by."""
    kept = PATTERNS[reading.pattern if reading else "all"](sample)
    return np.asarray(DIVISORS[divisor](sample)[..., None, None] * kept[..., None])


def _columns(sample: Sample, reading: Reading | None, divisor: str) -> dict[str, Array]:
    """[M, B, W, V] each: what each term adds to the gradient, with a coefficient of 1."""
    kept = PATTERNS[reading.pattern if reading else "all"](sample)
    law = _law(sample, reading, divisor)
    columns = {name: -law * term(sample) for name, term in TERMS.items()}
    for name, values in IN_REWARD.items():
        added = kept * values(sample)
        whole = _credited(sample, reading, added.sum(-1))
        columns[name + FROM_EACH_TOKEN] = (
            -law * sample.scores * later(added, reading.decay if reading else 1.0)[..., None]
        )
        columns[name] = -law * sample.scores * whole[..., None, None]
    return columns


def of_terms(sample: Sample, reading: Reading | None, found: Regularisers) -> Array:
    """[M, B, W, V] the part of the gradient that the terms make, without a baseline's."""
    columns = _columns(sample, reading, found.divisor)
    parts = [value * columns[name] for name, value in found.coefficients.items()]
    return np.where(sample.mask[..., None], sum(parts, np.zeros(sample.scores.shape)), 0.0)


def state_values(sample: Sample, decay: float) -> Array:
    """[tokens, states] what the value of each state does to the weight of each token.

    The generalised advantage (Schulman et al. 2016, equation 16) without a discount has V(s_t)
    once, and (λ − 1) λ^(k − t − 1) times each V(s_k) after it.
    """
    powers = _powers(sample.mask.shape[2], decay)
    share = powers - np.tri(len(powers), k=-1) * (powers / decay)
    which = np.unique(sample.states[sample.mask], return_inverse=True)[1]
    apart = np.zeros((*sample.mask.shape, which.max() + 1))
    apart[sample.mask] = np.eye(which.max() + 1)[which]
    return np.asarray((share.T @ apart)[sample.mask])


def _fewest(
    matrix: Array, wanted: Array, exact: float, free: Array
) -> tuple[tuple[int, ...], Array, float]:
    """The fewest columns whose sum is what is wanted, their coefficients, and what is missing.

    Columns of ``free`` may take part with any coefficients. Among sums that are exact the first
    counts, not that with the least rounding: a baseline of each state makes some of them equal.
    """
    # an orthogonal basis of the columns and of what is wanted keeps all that matters, in few rows
    reduced: Array = np.asarray(np.linalg.qr(np.column_stack([free, matrix, wanted]), mode="r"))
    size = float(np.linalg.norm(reduced[:, -1]))
    together = abs(float(reduced[-1, -1])) / size  # is missing with all of the columns
    if together > exact and len(wanted) >= reduced.shape[1]:
        return (), np.zeros(0), together
    rest = reduced[free.shape[1] :, free.shape[1] :]  # what is orthogonal to the free ones
    columns, target = rest[:, :-1], rest[:, -1]
    alone = float(np.linalg.norm(target)) / size
    best: tuple[tuple[int, ...], Array, float] = ((), np.zeros(0), alone)
    for count in range(1, _TERMS + 1):
        for chosen in itertools.combinations(range(columns.shape[1]), count):
            if best[2] < exact:
                return best
            part = columns[:, list(chosen)]
            values = np.linalg.lstsq(part, target, rcond=1e-10)[0]
            residual = float(np.linalg.norm(target - part @ values)) / size
            if residual < best[2]:
                best = (chosen, np.asarray(values), residual)
    return best


def _credited(sample: Sample, reading: Reading | None, values: Array) -> Array:
    """[M, B] what becomes of numbers that are added to the rewards: the reading's baseline."""
    if reading is None or reading.scale != "none" or not reading.coefficients.get("own"):
        return values
    bases = baseline_columns(replace(sample, rewards=values))
    own = reading.coefficients["own"]
    return np.asarray(sum(v / own * bases[n] for n, v in reading.coefficients.items()))
