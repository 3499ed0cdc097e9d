"""A loss whose answers come from another policy, read by what the same loss does on policy.

Off policy a token's weight is the one that it would have on policy, times a function of ratios. So
the loss is run twice on the same answers, and the function is measured: the quotient of weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from eligibility.audit.arrays import Array
from eligibility.audit.language.behaviour import Behaviour
from eligibility.audit.language.gates import Weighting, read_weighting
from eligibility.audit.language.laws import RATIOS, SCORED, TokenLaw
from eligibility.audit.language.measurement import Observed
from eligibility.audit.language.outcomes import Outcomes
from eligibility.audit.language.reading import EXACT, EXACT_IN_SINGLE, Reading, project
from eligibility.audit.language.sample import sample_of


def on_policy(outcomes: Outcomes) -> Outcomes:
    """The same answers and rewards, drawn from the policy that is scored."""
    worlds = tuple(replace(w, behaviour=Behaviour(), measured=None) for w in outcomes.worlds)
    return replace(outcomes, worlds=worlds)


def tempered(observed: Observed) -> Observed:
    """The same, where the policy that is meant has its logits divided by the temperature."""
    outcomes = observed.outcomes
    behaviour = outcomes.worlds[0].behaviour
    temperature = behaviour.temperature
    scaled = (world.with_tables(lambda _, table: table / temperature) for world in outcomes.worlds)
    worlds = tuple(replace(w, behaviour=replace(behaviour, temperature=1.0)) for w in scaled)
    return replace(
        observed,
        outcomes=replace(outcomes, worlds=worlds),
        logits=observed.logits / temperature,
        ref_logits=observed.ref_logits / temperature,
        ascent=observed.ascent * temperature,
    )


def weighed(drawn: Observed, plain: Observed, reading: Reading) -> tuple[Reading, Array] | None:
    """The reading of a loss off policy, and the part of its gradient that no ratio's bounds touch.

    Args:
        drawn: The gradients where the answers come from the behaviour.
        plain: The weights of the same answers on policy, where the scored policy may be another
            one.
        reading: What the rewards do to the weights on policy.

    Returns:
        The reading with its ratio, and [N, B, W, V] of what no reward has a part in; None: the
        quotient of the weights is not such a function.
    """
    for exact in (EXACT, EXACT_IN_SINGLE):
        for rewarded, other in _split(drawn, plain, exact):
            law = _law(drawn, replace(plain, ascent=rewarded), other, reading, exact)
            if law is not None and (reading.factor == "one" or law.factor == "one"):
                factor = reading.factor if law.factor == "one" else law.factor
                return replace(reading, factor=factor, gate=law.gate), other
    return None


def _split(drawn: Observed, plain: Observed, exact: float) -> Iterator[tuple[Array, Array]]:
    """What the ratios weigh, as it is on policy, and what they do not, as it is off policy."""
    none = np.zeros_like(plain.ascent)
    if np.linalg.norm(np.nan_to_num(plain.even)) <= exact * np.linalg.norm(drawn.ascent):
        yield plain.odd, none
        return
    ratio = np.where(drawn.mask, np.exp(drawn.log_probs - drawn.drawn), 0.0)[..., None]
    yield plain.odd, plain.even
    yield plain.odd, plain.even * ratio
    yield plain.ascent, none
    yield from ((plain.odd, _beside_clipped(drawn, plain, ratio)) for ratio in RATIOS.values())


def _beside_clipped(drawn: Observed, plain: Observed, law: TokenLaw) -> Array:
    """What no reward has a part in, where the scored policy is another one than on policy.

    A ratio that is clipped for one sign of the advantage leaves a half of its weight in the odd
    part of the gradients, and puts the other half into the even one.
    """
    before = sample_of(replace(drawn, logits=plain.logits), plain.odd, None, negated=True)
    after = sample_of(drawn, drawn.odd, None, negated=True)
    on_policy, measured = (project(each, each.scores)[0] for each in (before, after))
    ratio = law(after)
    whole = ratio * on_policy
    halved = np.abs(measured - whole / 2) < np.abs(whole) / 4
    pushes_on = np.where(on_policy * (ratio - 1) > 0, 1.0, -1.0)
    other = drawn.even.copy()
    other[drawn.probability > 0] += (halved * pushes_on * measured)[..., None] * after.scores
    return other


def _law(
    drawn: Observed, plain: Observed, other: Array, reading: Reading, exact: float
) -> Weighting | None:
    score = SCORED[reading.scored]
    sample = sample_of(drawn, drawn.ascent - other, None, negated=True).told_apart()
    weights, beside = project(sample, score(sample))
    if beside > exact:
        return None
    same = replace(drawn, logits=plain.logits)  # of the same batches
    on_policy = sample_of(same, plain.ascent, None, negated=True).told_apart()
    return read_weighting(sample, weights, project(on_policy, score(on_policy))[0], exact)
