"""The choices that a reading shows, each with the bias that it causes alone on the probe."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch

from eligibility.audit.faults import CHOICES
from eligibility.audit.faults.language import INSTEAD
from eligibility.audit.language.gates import NO_GATE
from eligibility.audit.language.laws import FACTORS, LEFT_OUT, RATIOS
from eligibility.audit.language.measured import TOLERANCE, Measured, against
from eligibility.audit.language.measurement import true_directions
from eligibility.audit.language.off_policy import on_policy
from eligibility.audit.language.places import place_of
from eligibility.audit.language.reading import Reading, predicted
from eligibility.audit.language.regularisers import FROM_EACH_TOKEN
from eligibility.audit.language.sample import sample_of
from eligibility.audit.reporting.report import Convention

_OF_DIVISOR = {
    **{f"own-length{rest}": "mean-over-each-episode" for rest in ("", *LEFT_OUT)},
    **{f"batch-tokens{rest}": "mean-over-time" for rest in ("", *LEFT_OUT)},
    **{f"group-tokens{rest}": "mean-over-time" for rest in ("", *LEFT_OUT)},
    "tokens of the ended": "mean-over-time",
    "tokens of groups that differ": "mean-over-time",
    "slice-tokens": "micro-batch-mean",
    "width": "padded-width",
}
_OF_RATIO = {name: name for name in RATIOS} | {"prefix-ratio": "token-ratio"}
# What is added to a loss or subtracted from a reward.
_OF_TERM = {
    "k1 in the reward": "kl-in-reward",
    "k2 in the reward": "kl-in-reward",
    "k3 in the reward": "kl-in-reward",
    "k2": "kl-per-token",
    "exact reverse": "kl-per-token",
    "ratio times k2": "squared-log-ratio",
    "k3 of the inverse ratio": "chi-squared",
    "absolute": "total-variation",
    "log-probability": "entropy-bonus",
    "log-probability in the reward": "entropy-bonus",
}
_OF_GATE = {
    "clipped": "clipped",
    "truncated": "truncated-importance",
    "masked": "masked-importance",
    "soft": "soft-clipped",
}
_WHITENED = ("group", "others of the group", "largest of the group", "mean size of the group",
             "range of the group")  # fmt: skip


def conventions_of(measured: Measured) -> tuple[Convention, ...]:
    """Every choice that was recognised."""
    found = [*_of_reading(measured), *_of_regularisers(measured)]
    if measured.residual < TOLERANCE and abs(measured.factor - 1.0) > TOLERANCE:
        found.append(("constant-scale", 0.0))
    return tuple(
        Convention(
            name,
            CHOICES[name],
            bias,
            0.0,
            *place_of(name, measured.operations),
            instead=INSTEAD[name],
        )
        for name, bias in dict(found).items()
    )


def _of_reading(measured: Measured) -> Iterator[tuple[str, float | None]]:
    reading = measured.reading
    if reading is None:
        return
    plain = replace(reading, divisor="constant", scale="none", gate=NO_GATE)
    # the bias of a fault, as of a token that is left out, is not that of a choice
    plain = replace(plain, pattern="all", scored="taken", decay=1.0, rewards="its own")
    if reading.factor in FACTORS:
        plain = replace(plain, factor="one")
    if reading.factor in RATIOS:
        yield _OF_RATIO[reading.factor], _bias(measured, plain)
    if reading.gate.kind in _OF_GATE:  # on weights that have no bias but for it
        gated = replace(plain, factor="sequence-ratio", gate=reading.gate)
        yield _OF_GATE[reading.gate.kind], _bias(measured, gated)
    # the draw's effect on the others has another name
    factor = "one" if reading.factor in RATIOS else reading.factor
    measured, plain = _on_policy(measured), replace(plain, factor=factor)
    parts = [part for part in reading.divisor.split(", ") if part in _OF_DIVISOR]
    for part in parts:
        yield _OF_DIVISOR[part], _bias(measured, replace(plain, divisor=part_alone(part)))
    if reading.selected:
        yield "selected-answers", _bias(measured, plain)
    if reading.divisor.startswith("ended"):
        yield "truncated-masked", _bias(measured, replace(plain, divisor="ended"))
    if reading.scale != "none":
        scaled = replace(plain, scale=reading.scale, epsilon=reading.epsilon)
        centred = any(v for n, v in reading.coefficients.items() if n != "own")
        name = "whitened" if reading.scale in _WHITENED else "batch-scaled"
        yield name if centred else "scaled", _bias(measured, scaled)
    if measured.regularisers is not None and measured.regularisers.baseline == "gae":
        yield "gae", None  # the errors of the values have a part in it
    elif reading.decay != 1.0:
        yield "discounted-by-token", _bias(measured, replace(plain, decay=reading.decay))
    yield from _of_baseline(measured, plain)


def _on_policy(measured: Measured) -> Measured:
    """The same outcomes with the probabilities, and the direction, of the policy that is scored."""
    observed = measured.observed
    if observed.outcomes.worlds[0].behaviour.on_policy:
        return measured
    outcomes = on_policy(observed.outcomes)
    drawn = torch.cat([outcomes.probabilities(world) for world in outcomes.worlds]).numpy()
    return replace(
        measured,
        observed=replace(observed, outcomes=outcomes, probability=drawn, drawn=observed.log_probs),
        directions=true_directions(outcomes),
    )


def part_alone(part: str) -> str:
    """The known divisor of a part of a longer one, or of one that a fault changes."""
    return "batch-tokens" if part == "tokens of the ended" else part.partition(" without ")[0]


def _of_baseline(measured: Measured, plain: Reading) -> Iterator[tuple[str, float | None]]:
    given = {name: value for name, value in plain.coefficients.items() if value}
    if not given.get("own") or len(given) == 1:
        return
    others = {name for name in given if name != "own"}
    bias = _bias(measured, plain)
    alone = _leaves_one_out(measured, plain)
    yield ("leave-one-out" if alone else "centred"), bias
    if others & {"batch", "tokens"} and measured.observed.language.prompts > 1:
        yield "groups-mixed", bias


def _leaves_one_out(measured: Measured, plain: Reading) -> bool:
    """Whether the scale is that of leave-one-out; up to a factor, it is the centred advantage."""
    language = measured.observed.language
    rows = language.prompts * language.group_size
    own = plain.coefficients["own"]
    size = language.group_size if plain.coefficients.get("group") else rows
    if size < 2 or measured.reading is None or measured.reading.divisor != "constant":
        return False
    left_out = size / (size - 1)
    usual = (1.0, 1.0 / rows, 1.0 / language.group_size, 1.0 / rows / language.length)
    near = [abs(own / (left_out * unit) - 1.0) < 1e-6 for unit in usual]
    return any(near) and not any(abs(own / unit - 1.0) < 1e-6 for unit in usual)


def _of_regularisers(measured: Measured) -> Iterator[tuple[str, float | None]]:
    if measured.regularisers is None:
        return
    if measured.regularisers.baseline == "value" or measured.has_constant_baseline:
        yield "baseline", 0.0
    for term, coefficient in measured.regularisers.coefficients.items():
        name = convention_of_term(term, coefficient)
        if name is None:
            continue
        expected = measured.other_part
        truth = measured.directions["reward"]
        factor = measured.components.get("reward", 0.0)
        typical = float(np.linalg.norm(expected))
        yield name, against(factor * truth + expected, truth, typical)[1]


def convention_of_term(term: str, coefficient: float) -> str | None:
    """The convention that a term of a loss with this coefficient is; None if it is none."""
    if coefficient > 0:
        return _OF_TERM.get(term.removesuffix(FROM_EACH_TOKEN))
    return "entropy-bonus" if term == "exact entropy" else None


def _bias(measured: Measured, reading: Reading) -> float:
    """The residual of what a reading expects, against ∇E[R]."""
    ascent = np.zeros_like(measured.observed.ascent)
    observed = replace(measured.observed, ascent=ascent)  # NaN is ignored
    kept = np.flatnonzero((observed.world % 2 == 0) & (observed.probability > 0))
    sample = sample_of(observed, ascent, None)
    sample = replace(sample, slice_rows=measured.sample.slice_rows)
    ascent[kept] = predicted(sample, reading)
    expected = observed.expected(ascent)[::2]
    truth = measured.directions["reward"][::2]
    size = float(np.linalg.norm(ascent))
    bias = against(expected, truth, size / max(len(kept), 1))[1]
    return 0.0 if bias < TOLERANCE else bias
