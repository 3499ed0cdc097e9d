"""What is measured of a loss, frozen: the judgement reads nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from eligibility.audit.arrays import Array, as_multiple
from eligibility.audit.language.credit import by_token_rewards, credit_of, mixed_outcome
from eligibility.audit.language.directions import decompose
from eligibility.audit.language.invariances import invariances
from eligibility.audit.language.languages import World
from eligibility.audit.language.measurement import (
    Observed,
    ascents,
    observe,
    prompt_share,
    share,
    true_directions,
)
from eligibility.audit.language.off_policy import on_policy, tempered, weighed
from eligibility.audit.language.outcomes import Outcomes
from eligibility.audit.language.parameters import BoundLoss
from eligibility.audit.language.reading import EXACT, EXACT_IN_SINGLE, Reading, read
from eligibility.audit.language.recording import Operation, operations
from eligibility.audit.language.regularisers import (
    DIRECTION_OF,
    Regularisers,
    of_terms,
    read_regularisers,
)
from eligibility.audit.language.sample import Sample, sample_of
from eligibility.audit.language.selected import read_selected
from eligibility.audit.language.token_batch import TokenBatch
from eligibility.audit.language.whitened import read_whitened
from eligibility.audit.reporting.report import Credit

_Found = TypeVar("_Found")
TOLERANCE = 1e-6  # shares below it are rounding, also where a loss computes in single precision


class _Parts:
    """What was read of a gradient."""

    reading: Reading | None
    regularisers: Regularisers | None
    regularised: bool

    @property
    def explained(self) -> bool:
        """Whether every part was read."""
        return self.reading is not None and (self.regularisers is not None or not self.regularised)


@dataclass(frozen=True, eq=False)
class Measured(_Parts):
    """What was measured.

    Attributes:
        observed: The gradient of every outcome.
        directions: The named directions.
        expected: [worlds, P, S, V] E[ascent].
        other_part: [worlds, P, S, V] of it, what does not.
        factor: c in E[ascent] = c ∇E[R] + …
        residual: ‖E[ascent] − c ∇E[R]‖ / ‖E[ascent]‖; 1 if the expectation is 0.
        cosine: Between the two; NaN if one is 0.
        components: Coefficients of the named directions.
        unexplained: Share of the expectation that no named direction explains.
        reading: What the rewards do to the weights; None: no composition explains it.
        regularisers: What no reward has a part in; None: nothing is there, or nothing explains it.
        regularised: Whether something is there in which no reward has a part.
        padded: Share of the gradients that lies at padded positions.
        prompts: Share of a batch's gradient that lies at the prompts' positions.
        sample: The batches that were read, with their whole gradients.
        reference_in_value: Whether the loss depends on the reference.
        reference_in_gradient: Whether its gradient does.
        credit_in_answer: [T, T] ∂(weight of token t)/∂(reward at token t′) of a long answer.
        credit: M of one outcome, if the loss can be asked for it.
        invariances: Relative changes of the gradient, likewise.
        operations: What the loss did on one batch, if possible one whose gradient is not a number.
    """

    observed: Observed
    directions: Mapping[str, Array]
    expected: Array
    other_part: Array
    factor: float
    residual: float
    cosine: float
    components: Mapping[str, float]
    unexplained: float
    reading: Reading | None
    regularisers: Regularisers | None
    regularised: bool
    padded: float
    sample: Sample
    prompts: float = 0.0
    reference_in_value: bool = False
    reference_in_gradient: bool = False
    credit_in_answer: Array = field(default_factory=lambda: np.eye(1))
    credit: Credit | None = None
    invariances: Mapping[str, float] = field(default_factory=dict)
    operations: tuple[Operation, ...] = ()

    @property
    def terms(self) -> Mapping[str, float]:
        """The coefficients of what no reward has a part in."""
        return self.regularisers.coefficients if self.regularisers is not None else {}

    @property
    def has_constant_baseline(self) -> bool:
        """Whether each token has a constant weight: without a reference, it is no divergence's."""
        return "k1" in self.terms and not self.reference_in_value


def measure(bound: BoundLoss, outcomes: Outcomes) -> Measured:
    """Everything that the judgement needs, of one loss."""
    drawn = not outcomes.worlds[0].behaviour.on_policy
    plain = observe(bound, on_policy(outcomes)) if drawn else None
    observed = observe(bound, outcomes)
    measured = measured_of(observed, bound.micro_batch, plain)
    if measured.reading is None and outcomes.worlds[0].behaviour.temperature != 1.0:
        scored = measured_of(tempered(observed), bound.micro_batch, plain)
        measured = measured if scored.reading is None else scored
    world = outcomes.worlds[0]
    in_value, in_gradient = _reference(bound, world, outcomes.chosen)
    outcome = mixed_outcome(world, outcomes.chosen)
    unit = _own(measured.reading, measured.factor / outcome.numel())
    return replace(
        measured,
        prompts=prompt_share(bound, world, outcome),
        reference_in_value=in_value,
        reference_in_gradient=in_gradient,
        credit_in_answer=_credit_in_answer(bound, world),
        credit=credit_of(bound, world, outcome, unit),
        invariances=invariances(bound, world, outcomes.chosen),
        operations=tuple(operations(bound, _traced(measured.observed, outcome))),
    )


def measured_of(
    observed: Observed, micro_batch: int | None, plain: Observed | None = None
) -> Measured:
    """What the gradients of every outcome tell, without another call of the loss.

    Args:
        observed: The gradients.
        micro_batch: Rows of a micro-batch; None: there is one.
        plain: The measurement of the same answers, drawn from the scored policy; None: unknown.
    """
    named = _wanted(observed)
    read = plain and _read_off_policy(observed, plain, micro_batch)
    found = read or _read(observed, micro_batch)
    other_part = observed.expected(np.nan_to_num(_without_baseline(found, observed, micro_batch)))
    expected = observed.expected(np.nan_to_num(observed.ascent))
    typical = _typical(observed)
    factor, residual, cosine = against(expected, named["reward"], typical)
    components, unexplained = _components(
        expected - other_part, other_part, named, typical, found.regularisers
    )
    return Measured(
        observed=observed,
        directions=named,
        expected=expected,
        other_part=other_part,
        factor=factor,
        residual=residual,
        cosine=cosine,
        components=components,
        unexplained=unexplained,
        reading=found.reading,
        regularisers=found.regularisers,
        regularised=found.regularised,
        padded=share(np.nan_to_num(observed.padded), np.nan_to_num(observed.ascent)),
        sample=sample_of(observed, observed.ascent, micro_batch),
    )


def _without_baseline(found: _Read, observed: Observed, micro_batch: int | None) -> Array:
    """[N, B, W, V] what no reward has a part in, but for a weight of each state."""
    terms = found.regularisers
    scaled = found.reading is not None and found.reading.scale != "none"
    if terms is None or not terms.baseline or scaled:
        return found.other
    whole = np.zeros_like(observed.ascent)
    sample = sample_of(observed, whole, micro_batch, negated=True)
    whole[sample.outcomes] = of_terms(sample, found.reading, terms)
    return whole


@dataclass(frozen=True, eq=False)
class _Read(_Parts):
    """The reading of a loss, and what no reward has a part in."""

    reading: Reading | None
    regularisers: Regularisers | None
    regularised: bool
    other: Array


def _read(observed: Observed, micro_batch: int | None) -> _Read:
    """The reading of all batches; else of those in which each row is known from the others."""
    found = _read_of(observed, micro_batch, lambda sample: sample)
    if found.explained or observed.language.prompts == 1:
        return found
    told = _read_of(observed, micro_batch, Sample.told_apart)
    return told if told.explained else found


def _read_of(
    observed: Observed, micro_batch: int | None, some: Callable[[Sample], Sample]
) -> _Read:
    """The reading of some of the batches."""
    whole = some(sample_of(observed, observed.ascent, micro_batch))
    rewarded = replace(whole, ascent=some(sample_of(observed, observed.odd, None)).ascent)
    other = replace(whole, ascent=some(sample_of(observed, observed.even, None)).ascent)
    regularised = other.size > TOLERANCE * whole.size
    off_policy = not observed.outcomes.worlds[0].behaviour.on_policy
    both = some(sample_of(observed, observed.ascent, micro_batch, negated=True))
    if regularised and not off_policy:
        selected = _first(lambda exact: read_selected(both, exact))
        if selected is not None:
            return _Read(selected, None, False, np.zeros_like(observed.ascent))
    reading = _first(lambda exact: read(rewarded, off_policy, exact))
    terms = _first(lambda exact: read_regularisers(other, reading, exact)) if regularised else None
    found = _Read(reading, terms, regularised, observed.even)
    if off_policy or found.explained or not regularised:
        return found
    together = _first(lambda exact: read_whitened(both, exact))
    return found if together is None else _Read(*together, regularised, observed.even)


def _read_off_policy(observed: Observed, plain: Observed, micro_batch: int | None) -> _Read | None:
    """The reading with the help of the same answers on policy."""
    known = _read(plain, micro_batch)
    if known.reading is None or not observed.finite.all():
        return None
    found = weighed(observed, plain, known.reading)
    return found and replace(known, reading=found[0], other=found[1])


def _traced(observed: Observed, outcome: Tensor) -> TokenBatch:
    """The batch whose operations are recorded."""
    worlds = observed.outcomes.worlds
    broken = np.flatnonzero(~observed.finite)
    if not len(broken):
        return worlds[0].batch(outcome)
    first = int(broken[0])
    return worlds[int(observed.world[first])].batch(torch.as_tensor(observed.chosen[first]))


def against(expected: Array, truth: Array, typical: float) -> tuple[float, float, float]:
    """c, the residual of c · truth, and the cosine.

    Args:
        expected: [...] E[ascent].
        truth: [...] a direction.
        typical: Norm of the gradients that were averaged: an expectation of rounding is 0.
    """
    if np.linalg.norm(expected) <= TOLERANCE * typical or not truth.any():
        return 0.0, 1.0, float("nan")
    return as_multiple(expected, truth)


def _own(reading: Reading | None, otherwise: float) -> float:
    """What an answer's own reward counts for each of its tokens, as far as it was read."""
    if reading is None or reading.scale != "none" or reading.divisor != "constant":
        return otherwise
    return reading.coefficients.get("own") or otherwise


def _typical(observed: Observed) -> float:
    finite = observed.ascent[observed.finite]
    weights = observed.probability[observed.finite]
    return float(np.sqrt((weights[:, None, None, None] * finite**2).sum()))


def _wanted(observed: Observed) -> dict[str, Array]:
    """The named directions of the policy that is meant: at the temperature of the draw, or at 1."""
    named = true_directions(observed.outcomes)
    temperature = observed.outcomes.worlds[0].behaviour.temperature
    if temperature == 1.0:
        return named
    drawn = true_directions(observed.outcomes, temperature)
    expected = observed.expected(np.nan_to_num(observed.odd))
    size = _typical(observed)
    plain = against(expected, named["reward"], size)[1]
    return named if plain < TOLERANCE else drawn


def _components(
    reward_part: Array,
    other_part: Array,
    named: Mapping[str, Array],
    typical: float,
    terms: Regularisers | None,
) -> tuple[dict[str, float], float]:
    """The coefficients: of the reward in its part, of the others in theirs.

    Where the others do not explain their part together, those that the terms have are fitted alone.
    """
    found: dict[str, float] = {}
    factor, missing, _ = against(reward_part, named["reward"], typical)
    left = (missing * np.linalg.norm(reward_part)) ** 2
    if abs(factor) > 0:
        found["reward"] = factor
    if np.linalg.norm(other_part) > TOLERANCE * typical:
        part = torch.as_tensor(other_part).flatten()
        others = {n: torch.as_tensor(d).flatten() for n, d in named.items() if n != "reward"}
        parts = decompose(part, others, TOLERANCE)
        if parts.residual > TOLERANCE and terms is not None:
            wanted = {DIRECTION_OF[term] for term in terms.coefficients if term in DIRECTION_OF}
            parts = decompose(part, {n: d for n, d in others.items() if n in wanted}, TOLERANCE)
        found |= parts.coefficients
        left += (parts.residual * np.linalg.norm(other_part)) ** 2
    whole = np.linalg.norm(reward_part + other_part)
    return found, float(np.sqrt(left) / whole) if whole > TOLERANCE * typical else 0.0


def _first(reader: Callable[[float], _Found | None]) -> _Found | None:
    """What a reader finds in double precision, or else in single."""
    return reader(EXACT) or reader(EXACT_IN_SINGLE)


def _reference(bound: BoundLoss, world: World, chosen: Tensor) -> tuple[bool, bool]:
    """Whether another reference changes the loss, and whether it changes the gradient."""
    some = chosen[:: max(len(chosen) // 4, 1)][:4]
    generator = torch.Generator().manual_seed(9)
    noise = torch.randn(world.ref_logits.shape, generator=generator, dtype=torch.float64)
    moved = replace(world, ref_logits=world.ref_logits + 0.3 * noise)
    values = np.nan_to_num(
        [[float(bound(w.batch(o)).detach()) for o in some] for w in (world, moved)]
    )
    gradients = [np.nan_to_num(ascents(bound, w, some).numpy()) for w in (world, moved)]
    in_value = bool(np.abs(values[0] - values[1]).max() > TOLERANCE * np.abs(values[0]).max())
    return in_value, share(gradients[0] - gradients[1], gradients[0]) > TOLERANCE


def _credit_in_answer(bound: BoundLoss, world: World) -> Array:
    """The longest answer in the first row, short ones in the others."""
    language = world.language
    chosen = torch.zeros(language.prompts * language.group_size, dtype=torch.int64)
    chosen[0] = len(language.answers) - 1
    return by_token_rewards(bound, world, chosen, 0)
