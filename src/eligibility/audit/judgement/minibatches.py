"""Batches that are cut into parts, each with its own optimizer step.

What is done to a whole part, such as whitening, shows in the gradient of its own step. So each step
of the first pass over the batch becomes a row of the evidence: all rewards, and the decisions that
this step uses. Which they are is read from the gradients; the generator that cuts is the same in
every run.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from eligibility.audit.arrays import Array, Booleans
from eligibility.audit.judgement.evidence import Evidence, ascents, own_columns
from eligibility.audit.running.survey import RAN, Survey

_RANK = 1e-6  # relative size below which gradients count as dependent
_LEFT = 1e-6  # share of the gradients beyond which a decision counts as missing


def minibatches(survey: Survey, evidence: Evidence) -> Evidence | None:
    """A row for each path and each part of its batch; None if no such parts can be read.

    Args:
        survey: Whose paths all have batches of the same length.
        evidence: The same, gathered.
    """
    traces = [trace for trace in survey.traces if trace.outcome in RAN and trace.steps]
    columns = own_columns(survey)
    steps = [ascents(trace, survey)[:, columns] for trace in traces]
    if len(traces) != evidence.paths or len({len(each) for each in steps}) != 1:
        return None
    of_steps = np.array(steps)  # [P, U, D]
    of_steps = of_steps[:, of_steps.any(axis=(0, 2))]  # without a critic's
    if of_steps.shape[1] < 2 or not evidence.present.all() or not np.isfinite(of_steps).all():
        return None
    parts = _first_pass(of_steps, evidence)
    if parts is None:
        return None
    rows = [
        replace(
            evidence,
            ascent=of_steps[:, number],
            used=np.broadcast_to(part, evidence.present.shape),
            eligibility=evidence.eligibility * part[:, None],
            entropy=evidence.entropy * part[:, None],
        )
        for number, part in enumerate(parts)
    ]
    return Evidence(
        **{
            name: np.concatenate([getattr(row, name) for row in rows])
            for name, value in vars(evidence).items()
            if isinstance(value, np.ndarray)
        },
        scored=evidence.scored,
    )


def _first_pass(of_steps: Array, evidence: Evidence) -> list[Booleans] | None:
    """The parts of the first pass over the batch, which cover it, and no decision twice."""
    parts: list[Booleans] = []
    for number in range(of_steps.shape[1]):
        parts.append(_used(of_steps[:, number], evidence))
        covered = np.sum(parts, axis=0)
        if covered.max() > 1 or parts[-1].all():
            return None
        if covered.min() == 1:
            return parts
    return None


def _used(ascent: Array, evidence: Evidence) -> Booleans:
    """[I] the decisions that are needed to explain the gradient [P, D] of at least one path.

    Two decisions in the same state can replace each other, so each must be the only one in its
    state on some path.
    """
    used: Booleans = np.ones(evidence.present.shape[1], dtype=bool)
    for position in range(len(used)):
        others = used & (np.arange(len(used)) != position)
        parts = (evidence.eligibility[:, others], evidence.entropy[:, others])
        basis = np.concatenate(parts, axis=1).transpose(0, 2, 1)  # [P, D, 2 I]
        basis = basis / np.maximum(np.linalg.norm(basis, axis=1, keepdims=True), 1e-300)
        solved = np.linalg.pinv(basis, rcond=_RANK) @ ascent[..., None]
        left = np.linalg.norm(ascent - (basis @ solved)[..., 0])
        used[position] = left > _LEFT * np.linalg.norm(ascent)
    return used
