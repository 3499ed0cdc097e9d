"""The factor with which a composition moves with the rewards as the program was seen to."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from eligibility.audit.arrays import Array, Booleans
from eligibility.audit.judgement.catalogue import Candidate, Told
from eligibility.audit.judgement.critic import Advantage
from eligibility.audit.judgement.timeline import timeline

AGREES = 1e-3  # share of the measured credit that may be another one's


def measured_scale(
    form: Candidate | Advantage, values: Array | None, told: Told | None, used: Booleans
) -> float:
    """The factor with which a composition has the measured credit; 0 if none, NaN if unmeasured.

    On few short paths the free values of a critic let a wrong composition, or the right one with
    another factor, fit every gradient.

    Args:
        form: The composition.
        values: The critic's, by state.
        told: What was measured.
        used: [I] decisions that are reinforced at all.
    """
    plain = form.form
    if told is None or told.path is None or told.credit is None or plain.divides:
        return float("nan")
    if plain.coupling:  # that all actions get one sum is measured; what is in it depends on lengths
        return float("nan")
    path, present = told.path, told.path.present[0]

    def weights(reward: Array) -> Array:
        other = replace(path, reward=reward[None])
        if isinstance(form, Candidate):
            given: Array = form.weights(timeline(other))
        else:
            known = np.zeros(form.places(other)[2])
            both = min(len(known), 0 if values is None else len(values))
            known[:both] = 0.0 if values is None else values[:both]
            given = form.weights(other, timeline(other), known)
        moves: Array = given[0, present]
        return moves

    own = weights(path.reward[0])
    moved = [weights(path.reward[0] + unit) - own for unit in np.eye(len(present))[present]]
    idle = np.zeros(len(present), dtype=bool)
    idle[: len(used)] = ~used[: len(present)]
    credit = np.array(moved).T
    credit[idle[present]] = 0.0
    if credit.shape != told.credit.shape:
        return float("nan")
    scale = float((credit * told.credit).sum() / ((credit**2).sum() or 1.0))
    off = float(np.linalg.norm(scale * credit - told.credit))
    return scale if off <= AGREES * np.linalg.norm(told.credit) else 0.0
