"""A constant in the place of what the last action of an episode earns, or added to it.

Such programs train on another objective on purpose. The constant c is one more unknown of the
gradients, which are linear in it; with c in its place the program is judged like any other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np

from eligibility.audit.arrays import Booleans
from eligibility.audit.judgement.catalogue import NORMS, Candidate
from eligibility.audit.judgement.constants import Constants
from eligibility.audit.judgement.credits import CREDITS
from eligibility.audit.judgement.critic import ENDINGS, Advantage, linear_columns
from eligibility.audit.judgement.entropy import entropy_columns
from eligibility.audit.judgement.evidence import Evidence
from eligibility.audit.judgement.match import Match, explaining
from eligibility.audit.judgement.matching import find_match
from eligibility.audit.judgement.measured import Measured
from eligibility.audit.judgement.timeline import timeline

_NONE = 1e-6  # relative size of a constant that is none


def with_end_reward(
    evidence: Evidence, constants: Constants, tolerance: float, critic: str, measured: Measured
) -> tuple[Match, Evidence] | None:
    """The composition that explains every path after such a change, and the paths as it sees them.

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


def plain_forms(constants: Constants, critic: str) -> Iterator[Advantage]:
    """Rewards-to-go, and with a critic its advantages: what is affine in the rewards."""
    for discount, norm, dated in product(constants.discounts, NORMS[:2], (False, True)):
        plain = Candidate(CREDITS[0], discount, dated, "", "batch", "", norm)
        yield Advantage(plain, "return", 1.0)
        if critic != "no":
            for ending, decay in product(ENDINGS, constants.decays_at(discount)):
                yield Advantage(plain, ending, decay)
