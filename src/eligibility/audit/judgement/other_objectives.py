"""Programs that train on another objective on purpose: other rewards, or an added term.

A constant in the place of what the last action of an episode earns, or added to it; rewards that
are clipped, shifted or squashed; a penalty of the parameters alone; credits over a number of their
batch. What changed is unknown, and the gradients are linear in it; given it, the program is judged
like any other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np

from eligibility.audit.arrays import Array, Booleans
from eligibility.audit.judgement.advantage import ENDINGS, Advantage
from eligibility.audit.judgement.audited_program import AuditedProgram
from eligibility.audit.judgement.catalogue import NORMS, Candidate, candidates
from eligibility.audit.judgement.constants import Constants
from eligibility.audit.judgement.credits import CREDITS, Credit
from eligibility.audit.judgement.critic import linear_columns
from eligibility.audit.judgement.entropy import entropy_columns
from eligibility.audit.judgement.evidence import Evidence
from eligibility.audit.judgement.explained import Explained, match_of
from eligibility.audit.judgement.match import Match, explaining, with_rewards
from eligibility.audit.judgement.measured import Measured
from eligibility.audit.judgement.timeline import timeline

NONE = 1e-6  # relative size of a constant that is none
_MOST = 24  # different rewards
_SAME = 1e-6  # relative to the largest reward


def with_end_reward(program: AuditedProgram, evidence: Evidence) -> Explained | None:
    """A constant at the end of every episode.

    A constant replaces a reward only where that reward, by the ``measured`` credit, moves nothing;
    one that is added needs a composition without a fault, so that it does not stand for another.
    """
    measured = program.measured
    if evidence.long or measured is None or measured.kind != "linear":
        return None
    added = not _dropped(measured)
    for ended in _endings(evidence):
        kept = evidence.reward if added else np.where(ended, 0.0, evidence.reward)
        constant = _constant(program, replace(evidence, reward=kept), ended)
        if constant is None:
            continue
        seen = replace(evidence, reward=kept + constant * ended)
        match = match_of(program if added else program.untold, seen)
        if match is not None and not (added and match.form.faults):
            done = "added to" if added else "in place of"
            note = f"with a constant {done} the last reward"
            return Explained(replace(match, note=note, changed="reward-at-end"), seen)
    return None


def _dropped(measured: Measured) -> bool:
    """Whether the last rewards of the replayed path's episodes move no weight."""
    path = measured.evidence
    ended = (path.terminated | path.truncated)[0]
    size = np.abs(measured.credit).max(axis=0)
    return bool(ended.any() and size[ended].max() < NONE * size.max())


def _endings(evidence: Evidence) -> Iterator[Booleans]:
    """Which steps may count as the last: of all episodes, or of those that terminated."""
    both = (evidence.terminated | evidence.truncated) & evidence.present
    yield both
    if (both != evidence.terminated).any():
        yield evidence.terminated & evidence.present


def _constant(program: AuditedProgram, evidence: Evidence, ended: Booleans) -> float | None:
    """The c with which a plain composition leaves nothing of the gradients."""
    line, critic = timeline(evidence), program.values
    bonus = replace(evidence, reward=ended.astype(float))
    bonus_line = timeline(bonus)
    for form in plain_forms(program.constants, critic):
        columns = linear_columns(evidence, line, form)
        shifted = linear_columns(bonus, bonus_line, form)[0]
        known = columns if critic != "no" else columns[:1]
        entropy = entropy_columns(evidence, line, form.norm)
        factors = explaining(evidence, [shifted, *known, *entropy], program.tolerance)
        if factors is not None and factors[1]:
            constant = float(factors[0] / factors[1])
            return constant if abs(constant) > NONE else None
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


def with_changed_rewards(program: AuditedProgram, evidence: Evidence) -> Explained | None:
    """Other rewards.

    A larger reward must never become a smaller one, and no fault may be left: a reward that is lost
    on the way is not a changed one, nor is one of which the fraction is lost.
    """
    stepwise = program.measured is not None and program.measured.kind == "stepwise"
    if evidence.long or stepwise or not program.shaped:
        return None
    own = np.unique(evidence.reward[evidence.present].round(9))
    if not 2 <= len(own) <= _MOST:
        return None
    parts = [
        replace(evidence, reward=(evidence.reward.round(9) == value).astype(float)) for value in own
    ]
    line, critic = timeline(evidence), program.values
    for form in plain_forms(program.constants, critic):
        if form.faults:
            continue
        columns = [linear_columns(part, timeline(part), form)[0] for part in parts]
        columns += linear_columns(evidence, line, form)[1:] if critic != "no" else ()
        columns += entropy_columns(evidence, line, form.norm)
        factors = explaining(evidence, columns, program.tolerance)
        found = _scaled(own, factors[: len(own)]) if factors is not None else None
        if found is None:
            continue
        pair = own, found
        seen = with_rewards(evidence, pair)
        match = match_of(program.untold, seen)
        if match is not None and not match.form.faults:
            note = _words(own, found)
            changed = replace(match, note=note, changed="reward-changed", rewards=pair)
            return Explained(changed, seen)
    return None


def with_free_scale(program: AuditedProgram, evidence: Evidence) -> Explained | None:
    """A positive factor that each path has of its own.

    What a batch's credits are divided by, such as their norm or their range, turns no gradient. On
    most paths there are several decisions, whose weights next to each other tell.
    """
    line = timeline(evidence)
    if evidence.long or 2 * (line.steps > 2).sum() < evidence.paths:
        return None
    target, size = evidence.ascent, float(np.linalg.norm(evidence.ascent))
    for form in candidates(line, program.constants.discounts, 2):
        if form.faults or form.divides or form.norm:
            continue
        column = evidence.gradient(form.weights(line))
        if not np.isfinite(column).all():
            continue
        square = (column * column).sum(axis=1)
        known = square > NONE * square.max()
        factor = np.where(known, (column * target).sum(axis=1) / np.where(known, square, 1.0), 0.0)
        left = float(np.linalg.norm(target - factor[:, None] * column)) / size
        if left < program.tolerance and (factor[known] > 0).all():
            note = "times a positive number that each batch has of its own"
            found = Match(form, "", 1.0, 0.0, left, note=note, changed="rescaled")
            return Explained(found, evidence)
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


def with_constant_term(program: AuditedProgram, evidence: Evidence) -> Explained | None:
    """A term of the parameters alone, next to a composition without a critic's values.

    Only where the credit was measured, from which such a term drops out: what an earlier batch adds
    to the second update is the same on every path of it, too.
    """
    if program.values != "no" or evidence.long or program.constants.told is None:
        return None
    paths, directions = evidence.ascent.shape
    same = np.tile(np.eye(directions), (paths, 1))
    line = timeline(evidence)
    for form in plain_forms(program.constants, "no"):
        own = linear_columns(evidence, line, form)[0]
        columns = [*same.T, own, *entropy_columns(evidence, line, form.norm)]
        factors = explaining(evidence, columns, program.tolerance)
        if factors is None:
            continue
        beside = factors[:directions]
        without = replace(evidence, ascent=evidence.ascent - beside)
        match = match_of(program, without)
        if match is not None and match.faultless:
            note = "next to a term of the parameters alone"
            named = replace(match, note=note, changed="parameter-penalty", beside=beside)
            return Explained(named, without)
    return None
