"""Every relation of decisions against its definition: a double loop over the decisions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace

import numpy as np
import pytest

from eligibility.audit.arrays import Array
from eligibility.audit.judgement.catalogue import Candidate
from eligibility.audit.judgement.credits import CREDITS
from eligibility.audit.judgement.evidence import Evidence
from eligibility.audit.judgement.timeline import Timeline, timeline

GAMMA = 0.8


def batches() -> Evidence:
    """Two paths: one actor with episodes of 2, 1 and 3 steps; two actors that take turns.

    In some rows of the rollout an actor's action is ignored, as after an end of an episode.
    """
    rows = [  # actor, episode, time
        [(0, 1, 0), (0, 1, 1), (0, 2, 0), (0, 3, 0), (0, 3, 1), (0, 3, 2)],
        [(0, 0, 0), (1, 0, 0), (0, 0, 1), (1, 1, 0), (0, 1, 0)],
    ]
    generator = np.random.Generator(np.random.PCG64(3))
    present = np.array([[True] * 6, [True] * 5 + [False]])
    number = np.array([row + [(0, 0, 0)] * (6 - len(row)) for row in rows])
    row = np.array([[0, 1, 3, 5, 6, 7], [0, 0, 1, 2, 3, 0]])
    empty = {field.name: np.zeros((2, 6)) for field in fields(Evidence)}
    reward = generator.normal(size=(2, 6)) * present
    return Evidence(
        **empty
        | {
            "present": present,
            "used": present,
            "reward": reward,
            "environment": number[..., 0],
            "episode": number[..., 1],
            "time": number[..., 2],
            "row": row,
            "rows": np.array([9, 4]),
            "scored": True,
            "remembers": False,
        }
    )


EVIDENCE = batches()
LINE = timeline(EVIDENCE)


def summed(weight: Callable[[Evidence, int, int, int], float], values: Array) -> Array:
    """[P, I] Σ_j weight(i, j) values_j over the decisions of the same path."""
    total = np.zeros(values.shape)
    for p, i, j in np.ndindex(2, 6, 6):
        if EVIDENCE.present[p, i] and EVIDENCE.present[p, j]:
            total[p, i] += weight(EVIDENCE, p, i, j) * values[p, j]
    return total


def same_actor(e: Evidence, p: int, i: int, j: int) -> bool:
    return bool(e.environment[p, i] == e.environment[p, j])


def same_episode(e: Evidence, p: int, i: int, j: int) -> bool:
    return same_actor(e, p, i, j) and bool(e.episode[p, i] == e.episode[p, j])


def length(e: Evidence, p: int, i: int) -> int:
    return sum(same_episode(e, p, i, k) for k in range(6) if e.present[p, k])


def order(e: Evidence, p: int, i: int) -> int:
    return sum(same_actor(e, p, i, k) for k in range(i))


def gap(e: Evidence, p: int, i: int, j: int) -> int:
    return int(e.time[p, j] - e.time[p, i])


def from_before(e: Evidence, p: int, i: int, j: int) -> float:
    """The episode's own return, and γ per step for the first return of the episode before."""
    if same_episode(e, p, i, j):
        return GAMMA ** gap(e, p, i, j) if j >= i else 0.0
    if not same_actor(e, p, i, j) or j > i:
        return 0.0
    start_i, start_j = order(e, p, i) - e.time[p, i], order(e, p, j) - e.time[p, j]
    between = start_i - start_j - length(e, p, j)
    return float(GAMMA ** (length(e, p, i) - e.time[p, i] + between + e.time[p, j]))


def seen_from(e: Evidence, p: int, i: int, j: int, row: int) -> float:
    """What decision j, the first one of i's actor from a row of the rollout on, counts there."""
    later = [k for k in range(6) if e.present[p, k] and same_actor(e, p, i, k)]
    later = [k for k in later if e.row[p, k] >= row]
    first = min(later, key=lambda k: e.row[p, k], default=None)
    return float(GAMMA ** (e.row[p, j] - row)) if row >= 0 and j == first else 0.0


DEFINITIONS: dict[str, tuple[Callable[[Timeline], Array], Callable[..., float]]] = {
    "discounted": (
        lambda line: line.discounted(GAMMA),
        lambda e, p, i, j: same_episode(e, p, i, j) * (j >= i) * GAMMA ** abs(gap(e, p, i, j)),
    ),
    "carried": (
        lambda line: line.carried(GAMMA),
        lambda e, p, i, j: (
            same_actor(e, p, i, j) * (j >= i) * GAMMA ** abs(order(e, p, j) - order(e, p, i))
        ),
    ),
    "carried_by_row": (
        lambda line: line.carried_by_row(GAMMA),
        lambda e, p, i, j: (
            same_actor(e, p, i, j) * (j >= i) * GAMMA ** abs(e.row[p, j] - e.row[p, i])
        ),
    ),
    "mirrored_in_rollout": (
        lambda line: line.mirrored_in_rollout(EVIDENCE.reward, GAMMA),
        lambda e, p, i, j: seen_from(e, p, i, j, e.rows[p] - 1 - e.row[p, i]),
    ),
    "shifted_in_rollout": (
        lambda line: line.shifted_in_rollout(EVIDENCE.reward, GAMMA),
        lambda e, p, i, j: seen_from(e, p, i, j, e.row[p, i] + 1),
    ),
    "carried_from_before": (lambda line: line.carried_from_before(GAMMA), from_before),
    "carried_over_actors": (
        lambda line: line.carried_over_actors(GAMMA),
        lambda e, p, i, j: (j >= i) * GAMMA ** abs(j - i),
    ),
    "episode_return": (
        lambda line: line.episode_return(GAMMA),
        lambda e, p, i, j: same_episode(e, p, i, j) * GAMMA ** e.time[p, j],
    ),
    "from_the_end": (
        lambda line: line.from_the_end(GAMMA),
        lambda e, p, i, j: (
            same_episode(e, p, i, j) * (j >= i) * GAMMA ** abs(length(e, p, j) - 1 - e.time[p, j])
        ),
    ),
    "so_far": (
        lambda line: line.so_far(GAMMA),
        lambda e, p, i, j: same_episode(e, p, i, j) * (j <= i) * GAMMA ** abs(gap(e, p, i, j)),
    ),
    "mirrored": (
        lambda line: line.mirrored(EVIDENCE.reward),
        lambda e, p, i, j: (
            same_episode(e, p, i, j) and e.time[p, j] == length(e, p, i) - 1 - e.time[p, i]
        ),
    ),
    "shifted": (
        lambda line: line.shifted(EVIDENCE.reward, 1),
        lambda e, p, i, j: same_episode(e, p, i, j) and gap(e, p, i, j) == 1,
    ),
    "shifted back": (
        lambda line: line.shifted(EVIDENCE.reward, -1),
        lambda e, p, i, j: same_episode(e, p, i, j) and gap(e, p, i, j) == -1,
    ),
    "shifted_in_batch": (
        lambda line: line.shifted_in_batch(EVIDENCE.reward),
        lambda e, p, i, j: j == i + 1,
    ),
    "total of the batch": (
        lambda line: line.total(EVIDENCE.reward, "batch"),
        lambda e, p, i, j: 1.0,
    ),
    "mean of the episode": (
        lambda line: line.mean(EVIDENCE.reward, "episode"),
        lambda e, p, i, j: same_episode(e, p, i, j) / length(e, p, i),
    ),
}


@pytest.mark.parametrize("name", DEFINITIONS)
def test_a_relation_is_the_sum_that_defines_it(name: str) -> None:
    computed, weight = DEFINITIONS[name]
    np.testing.assert_allclose(computed(LINE), summed(weight, EVIDENCE.reward), atol=1e-14)


def test_lengths_steps_and_episodes_are_counted() -> None:
    assert LINE.length.tolist() == [[2, 2, 1, 3, 3, 3], [2, 1, 2, 1, 1, 0]]
    assert LINE.steps.tolist() == [6, 5]
    assert LINE.episodes.tolist() == [3, 4]
    assert not LINE.single
    assert LINE.crowded
    assert not LINE.gapless
    assert LINE.last_of_rollout.tolist() == [[False] * 6, [False] * 4 + [True, False]]
    assert LINE.last_of_batch.tolist() == [[False] * 5 + [True], [False] * 4 + [True, False]]


def test_paths_that_are_one_episode_are_single() -> None:
    last = replace(EVIDENCE, present=EVIDENCE.present & (EVIDENCE.episode == 3))
    assert timeline(last.where(np.array([True, False]))).single


def test_numbers_that_differ_by_rounding_have_no_deviation() -> None:
    whitened = Candidate(CREDITS[0], GAMMA, False, "whitened", "batch", "", "")
    equal = np.where(np.arange(6) % 2 == 0, 0.1 + 0.2, 0.3) * EVIDENCE.present
    assert np.ptp(equal[0]) > 0.0
    assert not whitened.finished(equal, LINE).any()
    assert whitened.finished(EVIDENCE.reward, LINE).any()
