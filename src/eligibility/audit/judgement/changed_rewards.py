"""Rewards that a program clips, reduces to signs, shifts or squashes before it uses them.

Such programs train on another objective on purpose. What each of the probe's rewards became is an
unknown of the gradients, which are linear in it; with these rewards the program is judged like any
other.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from eligibility.audit.arrays import Array
from eligibility.audit.judgement.constants import Constants
from eligibility.audit.judgement.critic import linear_columns
from eligibility.audit.judgement.end_rewards import plain_forms
from eligibility.audit.judgement.entropy import entropy_columns
from eligibility.audit.judgement.evidence import Evidence
from eligibility.audit.judgement.match import Match, explaining, with_rewards
from eligibility.audit.judgement.matching import find_match
from eligibility.audit.judgement.measured import Measured
from eligibility.audit.judgement.timeline import timeline

_MOST = 24  # different rewards
_SAME = 1e-6  # relative to the largest reward


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
