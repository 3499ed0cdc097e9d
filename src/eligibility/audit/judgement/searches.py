"""Which compositions are tried, from the plainest on; most of them with the values of a critic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain, product

from eligibility.audit.judgement.advantage import (
    ACTION_VALUE,
    AFFINE,
    AFTER_RESET,
    AT_BATCH_END,
    BEHIND_BATCH,
    BY_COUNT,
    CROSSED,
    ENDINGS,
    FROM_LAST,
    HERE,
    OF_WHITENED,
    OWN,
    Advantage,
)
from eligibility.audit.judgement.carried import CARRIED, RULE
from eligibility.audit.judgement.catalogue import (
    SCOPES,
    TRANSFORMS,
    WHITENED,
    Candidate,
    candidates,
    compared_with_sums,
    has_single,
)
from eligibility.audit.judgement.constants import Constants
from eligibility.audit.judgement.credits import CREDITS
from eligibility.audit.judgement.timeline import Timeline

Search = Callable[[Timeline, Constants], Iterator[Candidate | Advantage]]
_OVER_SPREAD = (
    "whitened", "whitened-biased", "scaled", "scaled-biased", "scaled-biased-late",
    "whitened-of-several", "whitened-biased-of-several",
)  # fmt: skip
# What is done to rewards before values enter.
_OF_REWARDS = (
    "scaled", "scaled-biased", "scaled-of-several", "scaled-biased-of-several", "centred",
    "whitened", "whitened-biased", "whitened-of-several", "whitened-biased-of-several",
)  # fmt: skip


def plain(line: Timeline, constants: Constants) -> Iterator[Candidate]:
    """Compositions without values."""
    yield from candidates(line, constants.discounts, 2 if line.long else 3, constants.told)
    yield from compared_with_sums(line, constants.discounts, constants.told)


def without_faults(search: Search) -> Search:
    """The same search without what is wrong in itself."""
    return lambda line, constants: (form for form in search(line, constants) if not form.faults)


def _forms(line: Timeline, constants: Constants) -> Iterator[Candidate]:
    """Compositions that a critic's values may enter; of long batches only those without a fault."""
    for form in candidates(line, constants.discounts, parts=2, told=constants.told):
        if not line.long or not form.faults:
            yield form


def baselines(line: Timeline, constants: Constants) -> Iterator[Advantage]:
    """Compositions minus V(s); also whitened returns minus V(s), whitened again."""
    for form in _forms(line, constants):
        if form.transform in AFFINE:
            yield Advantage(form, "return", 1.0)
        if form.transform in TRANSFORMS[1:]:
            yield Advantage(form, "return-after-transform", 1.0)
        if form.transform in WHITENED and not form.faults and not line.long:
            whitened = replace(form, time_discount=False, coupling="", norm="")
            yield Advantage(form, OF_WHITENED, 1.0, rewards=whitened)


def own_returns(line: Timeline, constants: Constants) -> Iterator[Advantage]:
    """Compositions without a fault, minus a share of what the batch itself returned."""
    told = constants.told
    if told is not None:  # the share is subtracted here, and not by the form
        constants = replace(constants, told=replace(told, means=told.means | {""}))
    for form in _forms(line, constants):
        if not form.transform and not form.faults:
            for kind in OWN:
                yield Advantage(form, kind, 1.0)


def advantages(line: Timeline, constants: Constants) -> Iterator[Advantage]:
    """Generalised advantages, at first those whose weights are affine in the values."""
    for form in _forms(line, constants):
        plain = not form.credit.rule or form.credit.factor is not None
        if form.transform in AFFINE and plain:
            for ending, decay in product(ENDINGS, constants.decays_at(form.discount)):
                yield Advantage(form, ending, decay)
    yield from _whitened(line, constants)


def _whitened(line: Timeline, constants: Constants) -> Iterator[Advantage]:
    """Advantages over their own standard deviation: weights that are not affine in the values."""
    if line.long:
        return
    for form in _forms(line, constants):
        plain = not form.credit.rule and not form.coupling and form.scope in SCOPES
        if plain and form.transform in _OVER_SPREAD:
            yield Advantage(form, "return", 1.0)
            for ending, decay in product(ENDINGS[:2], constants.decays_at(form.discount)):
                yield Advantage(form, ending, decay)
                yield Advantage(form, ending, decay, baseline=False)


def unusual(line: Timeline, constants: Constants) -> Iterator[Advantage]:
    """What is tried where nothing else explains the gradients."""
    for form in _forms(line, constants):
        decays = constants.decays_at(form.discount)
        if not form.transform and not form.faults:
            for decay in decays:
                yield Advantage(form, BY_COUNT, decay)
                yield Advantage(form, HERE, decay)
                yield Advantage(form, FROM_LAST, decay)
        if form.transform in ("", *_OVER_SPREAD) and not (form.faults or line.single):
            for decay in decays:
                yield Advantage(form, AFTER_RESET, decay)
        if form.transform in _OVER_SPREAD and not form.faults:
            for ending, decay in product((ENDINGS[2], BY_COUNT, FROM_LAST), decays):
                yield Advantage(form, ending, decay)
        if form.transform in AFFINE and not form.faults:
            for ending, decay in product(ENDINGS, decays):
                yield Advantage(form, ending, decay, baseline=False)
        if form.transform in ("", *_OVER_SPREAD) and not form.faults:
            for ending, decay, steps in product(ENDINGS, decays, range(2, line.longest)):
                if decay > 0.0:
                    yield Advantage(form, ending, decay, steps=steps)
    yield from _misplaced(line, constants)
    yield from _of_normalised_rewards(line, constants)


def _misplaced(line: Timeline, constants: Constants) -> Iterator[Advantage]:
    """Credits with a fault, minus V(s), over their standard deviation."""
    if line.long:
        return
    for form in candidates(line, constants.discounts, parts=3, told=constants.told):
        spread = form.transform in _OVER_SPREAD and form.scope == "batch"
        if spread and form.credit.rule and form.faults:
            yield Advantage(form, "return", 1.0)


def _of_normalised_rewards(line: Timeline, constants: Constants) -> Iterator[Advantage]:
    """Advantages of rewards that were divided by their deviation, or had their mean subtracted."""
    told = constants.told
    if line.long or told is None or told.path is None:
        return
    immediate = next(credit for credit in CREDITS if credit.rule == "immediate-reward")
    scopes = SCOPES[:1] if line.single else SCOPES
    rewards = [
        own
        for transform, scope in product(_OF_REWARDS, scopes)
        if not (own := Candidate(immediate, 1.0, False, transform, scope, "", "")).spares_single
        or has_single(scope, line)
    ]
    for own, form in product(rewards, list(candidates(line, constants.discounts, parts=2))):
        both = form.transform.startswith("whitened") and form.scope == own.scope
        plain = not form.transform or (both and form.transform in _OVER_SPREAD)
        if not plain or form.faults or form.credit.rule or own.divides != told.divides:
            continue
        yield Advantage(form, "return", 1.0, rewards=own)
        for ending, decay in product(ENDINGS, constants.decays_at(form.discount)):
            yield Advantage(form, ending, decay, rewards=own)


def crossed(line: Timeline, constants: Constants) -> Iterator[Advantage]:
    """Compositions without a fault, minus the values of all the batch's states."""
    for form in _forms(line, constants):
        if not form.faults:
            for ending in CROSSED[2:] if form.transform in TRANSFORMS[1:] else CROSSED[:2]:
                yield Advantage(form, ending, 1.0)


def cut_batches(line: Timeline, constants: Constants) -> Iterator[Advantage]:
    """Generalised advantages of batches that end within episodes, whatever their last step did."""
    for form in _forms(line, constants):
        if _is_plain_credit(form):
            decays = constants.decays_at(form.discount)
            for decay, ending in product(decays, (AT_BATCH_END, *BEHIND_BATCH)):
                yield Advantage(form, ending, decay)


def carried(line: Timeline, constants: Constants) -> Iterator[Advantage]:
    """Generalised advantages that go on into the next episode, where the measured credit does."""
    told = constants.told
    if line.single or (told is not None and RULE not in told.rules):
        return
    if told is not None:
        constants = replace(constants, told=replace(told, rules=told.rules | {""}))
    for form in _forms(line, constants):
        if _is_plain_credit(form):
            for decay, ending in product(constants.decays_at(form.discount), CARRIED):
                yield Advantage(form, ending, decay)


def _is_plain_credit(form: Candidate) -> bool:
    """Whether it is the reward-to-go, with a transform over the batch that advantages have."""
    known = form.transform in (*AFFINE, *_OVER_SPREAD)
    return known and not form.faults and not form.credit.rule and form.scope == "batch"


def action_values(line: Timeline, constants: Constants) -> Iterator[Advantage]:
    """The critic's own Q(s, a) in the place of every return."""
    for form in candidates(line, constants.discounts, parts=1):
        if not form.transform and not form.faults and not form.credit.rule:
            yield Advantage(form, ACTION_VALUE, 0.0)


def fitted_critics(line: Timeline, constants: Constants) -> Iterator[Candidate | Advantage]:
    """A program that solves for its critic's values can let them depend on the time as well."""
    yield from without_faults(advantages)(line, constants)
    yield from _with_values_of("time", line, constants)


def noisy_critics(line: Timeline, constants: Constants) -> Iterator[Advantage]:
    """A critic with dropout has other values at each step; a recurrent one in each history."""
    for faults in ((), ENDINGS[1:2]):
        for what in ("time", "history"):
            yield from _with_values_of(what, line, constants, faults)


def _with_values_of(
    what: str, line: Timeline, constants: Constants, faults: tuple[str, ...] = ()
) -> Iterator[Advantage]:
    for form in chain(baselines(line, constants), advantages(line, constants)):
        if form.faults == faults:
            yield replace(form, of=what)
