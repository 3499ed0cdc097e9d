"""Which compositions are tried with the values of a critic, from the plainest on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product

from eligibility.audit.judgement.carried import CARRIED, RULE
from eligibility.audit.judgement.catalogue import TRANSFORMS, Candidate, Told, candidates
from eligibility.audit.judgement.critic import (
    ACTION_VALUE,
    AFFINE,
    AT_BATCH_END,
    BEHIND_BATCH,
    BY_COUNT,
    CROSSED,
    ENDINGS,
    HERE,
    OWN,
    Advantage,
)
from eligibility.audit.judgement.timeline import Timeline

Decays = Callable[[float], Sequence[float]]  # the λ that may go with a γ
_OVER_SPREAD = (
    "whitened", "whitened-biased", "scaled", "scaled-biased", "scaled-late",
    "whitened-of-several", "whitened-biased-of-several",
)  # fmt: skip


def _forms(line: Timeline, discounts: Sequence[float], told: Told | None) -> Iterator[Candidate]:
    """Compositions that a critic's values may enter; of long batches only those without a fault."""
    long = line.long
    for form in candidates(line, discounts, parts=2, told=told):
        if not long or not form.faults:
            yield form


def baselines(line: Timeline, discounts: Sequence[float], told: Told | None) -> Iterator[Advantage]:
    """Compositions minus V(s), whose weights are affine in the values."""
    for form in _forms(line, discounts, told):
        if form.transform in AFFINE:
            yield Advantage(form, "return", 1.0)
        if form.transform in TRANSFORMS[1:]:
            yield Advantage(form, "return-after-transform", 1.0)


def own_returns(
    line: Timeline, discounts: Sequence[float], told: Told | None
) -> Iterator[Advantage]:
    """Compositions without a fault, minus a share of what the batch itself returned."""
    if told is not None:  # the share is subtracted here, and not by the form
        told = replace(told, means=told.means | {""})
    for form in _forms(line, discounts, told):
        if not form.transform and not form.faults:
            for kind in OWN:
                yield Advantage(form, kind, 1.0)


def bootstraps(
    line: Timeline, discounts: Sequence[float], decays: Decays, told: Told | None
) -> Iterator[Advantage]:
    """Generalised advantages, whose weights are affine in the values."""
    for form in _forms(line, discounts, told):
        plain = not form.credit.rule or form.credit.factor is not None
        if form.transform in AFFINE and plain:
            for ending, decay in product(ENDINGS, decays(form.discount)):
                yield Advantage(form, ending, decay)


def whitened(
    line: Timeline,
    discounts: Sequence[float],
    decays: Decays,
    told: Told | None,
) -> Iterator[Advantage]:
    """Advantages over their own standard deviation: weights that are not affine in the values."""
    if line.long:
        return
    for form in _forms(line, discounts, told):
        plain = not form.credit.rule and not form.coupling and form.scope == "batch"
        if plain and form.transform in _OVER_SPREAD:
            yield Advantage(form, "return", 1.0)
            for ending, decay in product(ENDINGS[:2], decays(form.discount)):
                yield Advantage(form, ending, decay)
                yield Advantage(form, ending, decay, baseline=False)


def unusual(
    line: Timeline, discounts: Sequence[float], decays: Decays, told: Told | None
) -> Iterator[Advantage]:
    """What is tried where nothing else explains the gradients."""
    for form in _forms(line, discounts, told):
        if not form.transform and not form.faults:
            for decay in decays(form.discount):
                yield Advantage(form, BY_COUNT, decay)
                yield Advantage(form, HERE, decay)
            for ending in CROSSED:
                yield Advantage(form, ending, 1.0)
        if form.transform in AFFINE and not form.faults:
            for ending, decay in product(ENDINGS, decays(form.discount)):
                yield Advantage(form, ending, decay, baseline=False)


def cut_batches(
    line: Timeline, discounts: Sequence[float], decays: Decays, told: Told | None
) -> Iterator[Advantage]:
    """Generalised advantages of batches that end within episodes, whatever their last step did."""
    for form in _forms(line, discounts, told):
        known = not form.transform or form.transform in (*AFFINE, *_OVER_SPREAD)
        if known and not form.faults and not form.credit.rule and form.scope == "batch":
            for decay, ending in product(decays(form.discount), (AT_BATCH_END, *BEHIND_BATCH)):
                yield Advantage(form, ending, decay)


def action_values(line: Timeline, discounts: Sequence[float]) -> Iterator[Advantage]:
    """The critic's own Q(s, a) in the place of every return."""
    for form in candidates(line, discounts, parts=1):
        if not form.transform and not form.faults and not form.credit.rule:
            yield Advantage(form, ACTION_VALUE, 0.0)


def carried(
    line: Timeline, discounts: Sequence[float], decays: Decays, told: Told | None
) -> Iterator[Advantage]:
    """Generalised advantages that go on into the next episode, where the measured credit does."""
    if told is None or RULE not in told.rules or line.single:
        return
    told = replace(told, rules=told.rules | {""})
    for form in _forms(line, discounts, told):
        known = form.transform in AFFINE or form.transform in _OVER_SPREAD
        if known and not form.faults and not form.credit.rule and form.scope == "batch":
            for decay, ending in product(decays(form.discount), CARRIED):
                yield Advantage(form, ending, decay)
