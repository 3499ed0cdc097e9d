"""Programs that train on another objective on purpose: other rewards, or an added term.

A constant in the place of what the last action of an episode earns, or added to it; rewards that
are clipped, reduced to signs, shifted or squashed, or get a term of the state that follows; a
penalty of the parameters alone; credits that are divided by a number of their batch. What changed
is unknown, and the gradients are linear in it; given it, the program is judged like any other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, product

import numpy as np

from eligibility.audit.arrays import Array, Booleans
from eligibility.audit.job import STATES
from eligibility.audit.judgement.advantage import ENDINGS, Advantage
from eligibility.audit.judgement.catalogue import NORMS, Candidate, candidates
from eligibility.audit.judgement.constants import Constants
from eligibility.audit.judgement.credits import CREDITS, Credit
from eligibility.audit.judgement.critic import linear_columns
from eligibility.audit.judgement.entropy import entropy_columns
from eligibility.audit.judgement.evidence import Evidence
from eligibility.audit.judgement.match import Match, explaining, with_rewards
from eligibility.audit.judgement.matching import find_match
from eligibility.audit.judgement.measured import Measured
from eligibility.audit.judgement.timeline import timeline

_NONE = 1e-6  # relative size of a constant that is none
_MOST = 24  # different rewards
_WHOLE = "whole-episode-return"
_SAME = 1e-6  # relative to the largest reward


def with_end_reward(
    evidence: Evidence, constants: Constants, tolerance: float, critic: str, measured: Measured
) -> tuple[Match, Evidence] | None:
    """The composition that explains every path with a constant at its end, and the paths with it.

    A constant replaces a reward only where that reward, by the ``measured`` credit, moves nothing;
    one that is added needs a composition without a fault, so that it does not stand for another.
    """
    if evidence.long or measured.kind != "linear":
        return None
    added = not _dropped(measured)
    for ended in _endings(evidence):
        kept = evidence.reward if added else np.where(ended, 0.0, evidence.reward)
        constant = _constant(replace(evidence, reward=kept), ended, constants, tolerance, critic)
        if constant is None:
            continue
        seen = replace(evidence, reward=kept + constant * ended)
        known = constants if added else replace(constants, told=None)
        match = find_match(seen, known, tolerance, critic)
        if match is not None and not (added and match.form.faults):
            done = "added to" if added else "in place of"
            note = f"with a constant {done} the last reward"
            return replace(match, note=note, changed="reward-at-end"), seen
    return None


def _dropped(measured: Measured) -> bool:
    """Whether the last rewards of the replayed path's episodes move no weight."""
    path = measured.evidence
    ended = (path.terminated | path.truncated)[0]
    size = np.abs(measured.credit).max(axis=0)
    return bool(ended.any() and size[ended].max() < _NONE * size.max())


def _endings(evidence: Evidence) -> Iterator[Booleans]:
    """Which steps may count as the last: of all episodes, or of those that terminated."""
    both = (evidence.terminated | evidence.truncated) & evidence.present
    yield both
    if (both != evidence.terminated).any():
        yield evidence.terminated & evidence.present


def _constant(
    evidence: Evidence, ended: Booleans, constants: Constants, tolerance: float, critic: str
) -> float | None:
    """The c with which a plain composition leaves nothing of the gradients."""
    line = timeline(evidence)
    bonus = replace(evidence, reward=ended.astype(float))
    bonus_line = timeline(bonus)
    for form in plain_forms(constants, critic):
        columns = linear_columns(evidence, line, form)
        shifted = linear_columns(bonus, bonus_line, form)[0]
        known = columns if critic != "no" else columns[:1]
        entropy = entropy_columns(evidence, line, form.norm)
        factors = explaining(evidence, [shifted, *known, *entropy], tolerance)
        if factors is not None and factors[1]:
            constant = float(factors[0] / factors[1])
            return constant if abs(constant) > _NONE else None
    return None


def plain_forms(
    constants: Constants, critic: str, credit: Credit = CREDITS[0]
) -> Iterator[Advantage]:
    """Rewards-to-go, and with a critic its advantages: what is affine in the rewards."""
    for discount, norm, dated in product(constants.discounts, NORMS[:2], (False, True)):
        plain = Candidate(credit, discount, dated, "", "batch", "", norm)
        yield Advantage(plain, "return", 1.0)
        if critic != "no":
            for ending, decay in product(ENDINGS, constants.decays_at(discount)):
                yield Advantage(plain, ending, decay)


def with_changed_rewards(
    evidence: Evidence,
    constants: Constants,
    tolerance: float,
    critic: str,
    measured: Measured | None,
) -> tuple[Match, Evidence] | None:
    """The composition that explains every path with other rewards, and the paths with these.

    A larger reward must never become a smaller one, and no fault may be left: a reward that is lost
    on the way is not a changed one, nor is one of which the fraction is lost.
    """
    if evidence.long or (measured is not None and measured.kind == "stepwise"):
        return None
    own = np.unique(evidence.reward[evidence.present].round(9))
    if not 2 <= len(own) <= _MOST:
        return None
    parts = [
        replace(evidence, reward=(evidence.reward.round(9) == value).astype(float)) for value in own
    ]
    line = timeline(evidence)
    for form in plain_forms(constants, critic):
        if form.faults:
            continue
        columns = [linear_columns(part, timeline(part), form)[0] for part in parts]
        columns += linear_columns(evidence, line, form)[1:] if critic != "no" else ()
        columns += entropy_columns(evidence, line, form.norm)
        factors = explaining(evidence, columns, tolerance)
        found = _scaled(own, factors[: len(own)]) if factors is not None else None
        if found is None:
            continue
        pair = own, found
        seen = with_rewards(evidence, pair)
        match = find_match(seen, replace(constants, told=None), tolerance, critic)
        if match is not None and not match.form.faults:
            note = _words(own, found)
            return replace(match, note=note, changed="reward-changed", rewards=pair), seen
    return None


def with_added_rewards(
    evidence: Evidence, constants: Constants, tolerance: float, critic: str
) -> tuple[Match, Evidence] | None:
    """The composition that explains every path with a term of the next state in each reward.

    Only where the credit was measured, from which such a term drops out, and without a fault.
    """
    told = constants.told
    if evidence.long or told is None or told.credit is None:
        return None
    states = np.unique(evidence.next_state[evidence.present])
    parts = [
        replace(evidence, reward=(evidence.next_state == state).astype(float)) for state in states
    ]
    line, lines = timeline(evidence), [timeline(part) for part in parts]
    whole = next(credit for credit in CREDITS if credit.rule == _WHOLE)
    forms = plain_forms(constants, critic)
    for form in (
        forms if _WHOLE not in told.rules else chain(forms, plain_forms(constants, "no", whole))
    ):
        if form.faults:
            continue
        own, *values = linear_columns(evidence, line, form)
        columns = [linear_columns(*part, form)[0] for part in zip(parts, lines, strict=True)]
        columns += [own, *(values if critic != "no" else ())]
        columns += entropy_columns(evidence, line, form.norm)
        factors = explaining(evidence, columns, tolerance)
        if factors is None or not factors[len(states)]:
            continue
        added = np.zeros(1 + STATES)
        added[states] = factors[: len(states)] / factors[len(states)]
        seen = with_rewards(evidence, None, added)
        match = find_match(seen, constants, tolerance, critic)
        if match is not None and not match.form.faults:
            note = "with a term of the next state added to each reward"
            return replace(match, note=note, changed="reward-changed", added=added), seen
    return None


def with_free_scale(
    evidence: Evidence, constants: Constants, tolerance: float
) -> tuple[Match, Evidence] | None:
    """The composition that explains every path up to a positive number, which is each path's own.

    What a batch's credits are divided by, such as their norm or their range, turns no gradient. On
    most paths there are several decisions, whose weights next to each other tell.
    """
    line = timeline(evidence)
    if evidence.long or 2 * (line.steps > 2).sum() < evidence.paths:
        return None
    target, size = evidence.ascent, float(np.linalg.norm(evidence.ascent))
    for form in candidates(line, constants.discounts, 2):
        if form.faults or form.divides or form.norm:
            continue
        column = evidence.gradient(form.weights(line))
        if not np.isfinite(column).all():
            continue
        square = (column * column).sum(axis=1)
        known = square > _NONE * square.max()
        factor = np.where(known, (column * target).sum(axis=1) / np.where(known, square, 1.0), 0.0)
        left = float(np.linalg.norm(target - factor[:, None] * column)) / size
        if left < tolerance and (factor[known] > 0).all():
            note = "times a positive number that each batch has of its own"
            found = Match(form, "", 1.0, 0.0, left)
            return replace(found, note=note, changed="rescaled"), evidence
    return None


def _scaled(own: Array, became: Array) -> Array | None:
    """What the rewards became, in their own units where possible; None if they have no order."""
    size = float(np.abs(became).max())
    if became[-1] < became[0]:  # the program descends
        became = -became
    steps = np.diff(became)
    if steps.min() < -_SAME * size or steps.max() <= _SAME * size:
        return None
    became = np.where(np.abs(became) < _SAME * size, 0.0, became)
    if any(_proportional(became, whole(own)) for whole in (np.trunc, np.round, np.floor)):
        return None
    # a constant factor is told apart from the rest: the one that leaves most of them as they were
    ratios = became[own != 0] / own[own != 0]
    alike = [int(np.isclose(became, r * own, rtol=_SAME, atol=0.0).sum()) for r in ratios]
    best = int(np.argmax(alike))
    if alike[best] > 1 and ratios[best] > 0:
        return np.asarray(became / ratios[best])
    rises = steps / np.diff(own)
    if np.ptp(rises) < _SAME * rises.max():  # only shifted
        return np.asarray(became / rises.mean())
    return np.asarray(became / size)


def _proportional(became: Array, others: Array) -> bool:
    """Whether they are the same but for a factor."""
    factor = float(became @ others) / float(others @ others or 1.0)
    return bool(np.abs(became - factor * others).max() < _SAME * np.abs(became).max())


def _words(own: Array, became: Array) -> str:
    """What was changed, as a part of the rule."""
    shift = became - own
    if np.ptp(shift) < _SAME * np.abs(own).max():
        return f"with {shift.mean():+.4g} added to each reward"
    pairs = (f"{a:.4g} is {b:.4g}" for a, b in zip(own, became, strict=True) if abs(a - b) > _SAME)
    return f"with other rewards: {', '.join(pairs)}"


def with_constant_term(
    evidence: Evidence, constants: Constants, tolerance: float
) -> tuple[Match, Evidence] | None:
    """The composition that explains every path next to such a term, and the paths without it.

    Only where the credit was measured, from which such a term drops out: what an earlier batch adds
    to the second update is the same on every path of it, too.
    """
    if evidence.long or constants.told is None:
        return None
    paths, directions = evidence.ascent.shape
    same = np.tile(np.eye(directions), (paths, 1))
    line = timeline(evidence)
    for form in plain_forms(constants, "no"):
        own = linear_columns(evidence, line, form)[0]
        columns = [*same.T, own, *entropy_columns(evidence, line, form.norm)]
        factors = explaining(evidence, columns, tolerance)
        if factors is None:
            continue
        beside = factors[:directions]
        without = replace(evidence, ascent=evidence.ascent - beside)
        match = find_match(without, constants, tolerance, "no")
        if match is not None and match.faultless:
            note = "next to a term of the parameters alone"
            named = replace(match, note=note, changed="parameter-penalty", beside=beside)
            return named, without
    return None
