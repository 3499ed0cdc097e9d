"""Batches of episodes taken apart: the gradient of each episode alone, where they add up."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from eligibility.audit.arrays import Array
from eligibility.audit.judgement.catalogue import norm_factor
from eligibility.audit.judgement.evidence import Evidence, kinds_of
from eligibility.audit.judgement.timeline import Timeline, timeline


@lru_cache(maxsize=16)
def single_episodes(
    evidence: Evidence, line: Timeline, norm: str, tolerance: float
) -> tuple[Evidence, Timeline] | None:
    """The batches' different episodes, a path each, with what each adds to its batch's gradient.

    None if the gradients, multiplied by what ``norm`` divides them by, are not sums over episodes,
    or do not tell the summands.
    """
    kinds = list(kinds_of(evidence).values())
    counts = np.zeros((evidence.paths, len(kinds)))
    for number, kind in enumerate(kinds):
        np.add.at(counts, ([path for path, _ in kind], number), 1.0)
    whole = evidence.ascent / norm_factor(norm, line)[:, :1]
    ascent, _, rank, _ = np.linalg.lstsq(counts, whole, rcond=1e-11)
    left = float(np.linalg.norm(whole - counts @ ascent))
    if rank < len(kinds) or left >= tolerance * float(np.linalg.norm(whole)):
        return None
    first = [kind[0] for kind in kinds]
    cut: dict[str, Any] = {
        name: _taken(value, first, line.longest)
        for name, value in vars(evidence).items()
        if isinstance(value, np.ndarray) and value.ndim > 1 and name != "ascent"
    }
    cut |= {"ascent": ascent, "probability": evidence.probability @ counts}
    none = np.zeros_like(cut["episode"])
    rows = np.array([len(positions) for _, positions in first])
    cut |= {"episode": none, "environment": none, "row": cut["time"], "rows": rows}
    alone = replace(evidence, **cut)
    return alone, timeline(alone)


def _taken(values: Array, episodes: list[tuple[int, Any]], longest: int) -> Array:
    """[n, longest, ...] the entries of each episode, and 0 beyond its end."""
    taken = np.zeros((len(episodes), longest, *values.shape[2:]), dtype=values.dtype)
    for number, (path, positions) in enumerate(episodes):
        taken[number, : len(positions)] = values[path, positions]
    return taken
