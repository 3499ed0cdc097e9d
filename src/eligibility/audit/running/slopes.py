"""The slopes of a program's probabilities: two runs of one path, its parameters moved both ways."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from eligibility.audit.arrays import Array
from eligibility.audit.job import Job, mixture_of
from eligibility.audit.running.runner import Runner, run_all
from eligibility.audit.running.sampling_calls import executed_draws
from eligibility.audit.trace import Draw, Trace

# A choice as a function of the parameters: the state, which component of the action, and the
# distribution at θ. Choices that agree in these are the same function.
Key = tuple[int, int, tuple[float, ...], float | None, float | None]


@dataclass(frozen=True)
class Slope:
    """How one choice's distribution moves along the probing directions.

    Attributes:
        log_probs: [outcomes, D] derivative of each outcome's ln p; empty for a Gaussian.
        loc: [D] derivative of a Gaussian's mean, else zeros.
        scale: [D] derivative of a Gaussian's standard deviation, else zeros.
    """

    log_probs: Array
    loc: Array
    scale: Array

    @property
    def moves(self) -> bool:
        """Whether any parameter moves the distribution."""
        return bool(self.log_probs.any() or self.loc.any() or self.scale.any())


@dataclass(frozen=True)
class Target:
    """The distribution that a program learns in the place of one that it acts by.

    Attributes:
        probs: Its probabilities; empty for a Gaussian.
        loc: A Gaussian's mean, else None.
        scale: A Gaussian's standard deviation, else None.
        slope: How it moves.
    """

    probs: tuple[float, ...]
    loc: float | None
    scale: float | None
    slope: Slope

    def is_close(self, other: Target) -> bool:
        """Whether the other one is the same distribution, up to rounding."""
        one, two = ((*each.probs, each.loc or 0.0, each.scale or 0.0) for each in (self, other))
        return len(one) == len(two) and bool(np.allclose(one, two))

    def of(self, draw: Draw) -> Draw:
        """The same choice, as if it had been made by this one."""
        return replace(draw, probs=self.probs or draw.probs, loc=self.loc, scale=self.scale)


def key_of(draw: Draw, state: int, component: int) -> Key:
    """What identifies a choice as a function of the parameters."""
    rounded = () if draw.loc is not None else tuple(round(prob, 9) for prob in draw.probs)
    loc = None if draw.loc is None else round(draw.loc, 9)
    scale = None if draw.scale is None else round(draw.scale, 9)
    return state, component, rounded, loc, scale


def action_keys(trace: Trace, call: int) -> Iterator[tuple[Key, int]]:
    """Key and position of every choice that made an action."""
    for step in trace.steps:
        for component, position in enumerate(executed_draws(step, call)):
            yield key_of(trace.draws[position], step.state, component), position


def covering_paths(
    traces: list[Trace], call: int, slopes: dict[Key, Slope]
) -> list[tuple[Trace, dict[Key, int]]]:
    """A few paths that meet every choice without a slope: greedily the one with most new ones."""
    left = [(trace, _first_positions(trace, call)) for trace in traces]
    known = set(slopes)
    cover: list[tuple[Trace, dict[Key, int]]] = []
    while left:
        trace, keys = max(left, key=lambda item: len(item[1].keys() - known))
        new = {key: position for key, position in keys.items() if key not in known}
        if not new:
            break
        cover.append((trace, new))
        known |= new.keys()
    return cover


def _first_positions(trace: Trace, call: int) -> dict[Key, int]:
    """Where a path meets each choice first: runs that look at it can stop there.

    If an optimizer was created after some choices, those after it: the parameters were not known
    before, and nothing moves them there.
    """
    positions: dict[Key, int] = {}
    for key, position in action_keys(trace, call):
        if positions.setdefault(key, position) < trace.known <= position:
            positions[key] = position
    return positions


def both_ways(
    runner: Runner, job: Job, cover: list[tuple[Trace, dict[Key, int]]]
) -> dict[Key, tuple[Draw, Draw]]:
    """Each choice of the paths with the parameters moved forwards, and backwards."""
    pairs: dict[Key, tuple[Draw, Draw]] = {}
    runs = run_all(
        runner,
        (
            replace(_up_to(job, trace, keys), distance=sign * job.distance)
            for trace, keys in cover
            for sign in (1.0, -1.0)
        ),
    )
    for trace, keys in cover:
        moved = next(runs), next(runs)
        for key, position in keys.items():
            if all(position < len(run.draws) for run in moved):
                pairs[key] = (moved[0].draws[position], moved[1].draws[position])
            else:
                pairs[key] = (trace.draws[position], trace.draws[position])
    return pairs


def _up_to(job: Job, trace: Trace, keys: dict[Key, int]) -> Job:
    """The job on a path, up to the last of these choices."""
    needed = max(keys.values()) + 1
    prescribed = trace.picked[:needed]
    return replace(job, prescribed=prescribed, stop_after=needed, noise=trace.noise)


def from_graphs(
    runner: Runner,
    job: Job,
    cover: list[tuple[Trace, dict[Key, int]]],
    directions: Sequence[tuple[int, int]],
    rounding: float,
) -> dict[Key, Slope]:
    """The slopes of the choices that the program's own graph can differentiate: one run a path.

    The first path is checked by differences, along a mixture of all directions; if they disagree
    by more than ``rounding``, nothing is taken from graphs.
    """
    found: dict[Key, Slope] = {}
    columns = [tensor * job.directions + direction for tensor, direction in directions]
    jobs = [_up_to(job, trace, keys) for trace, keys in cover]
    runs = run_all(runner, (replace(along, slopes=True) for along in jobs))
    for number, ((_, keys), run) in enumerate(zip(cover, runs, strict=True)):
        rows = {one.draw: np.array(one.rows) for one in run.slopes}
        for key, position in keys.items():
            own = rows.get(position)
            if own is not None and own.shape[1] > max(columns) and position < len(run.draws):
                found[key] = _as_slope(run.draws[position], own[:, columns])
        if number == 0 and not _agrees(runner, jobs[0], keys, found, columns, rounding):
            return {}
    return found


def _as_slope(draw: Draw, rows: Array) -> Slope:
    if draw.loc is not None:
        return Slope(np.zeros((0, rows.shape[1])), rows[0], rows[1])
    still = np.zeros(rows.shape[1])
    return Slope(np.nan_to_num(rows, nan=0.0, posinf=0.0, neginf=0.0), still, still)


def _agrees(
    runner: Runner,
    along: Job,
    keys: dict[Key, int],
    found: dict[Key, Slope],
    columns: Sequence[int],
    rounding: float,
) -> bool:
    """Whether the differences along a mixture of all directions are those of the graph."""
    distance = along.distance
    both = (replace(along, everywhere=True, distance=sign * distance) for sign in (1, -1))
    moved = [*run_all(runner, both)]
    mixture = mixture_of(columns)
    for key, position in keys.items():
        own = found.get(key)
        if own is None:
            continue
        if any(position >= len(run.draws) for run in moved):
            return False
        pair = (moved[0].draws[position], moved[1].draws[position])
        seen = slope_of(key, [pair], distance)
        for graph, differences in (
            (own.log_probs, seen.log_probs[:, 0]),
            (own.loc, seen.loc),
            (own.scale, seen.scale),
        ):
            size = 1.0 + float(np.abs(graph).max(initial=0.0))
            if not np.allclose(graph @ mixture, differences, rtol=0.0, atol=rounding * size):
                return False
    return True


def slope_of(key: Key, pairs: list[tuple[Draw, Draw]], distance: float) -> Slope:
    """The central differences of one choice, over all directions."""
    width = 2.0 * distance
    if key[3] is not None:
        loc = [((plus.loc or 0.0) - (minus.loc or 0.0)) / width for plus, minus in pairs]
        scale = [((plus.scale or 0.0) - (minus.scale or 0.0)) / width for plus, minus in pairs]
        return Slope(np.zeros((0, len(pairs))), np.array(loc), np.array(scale))
    with np.errstate(divide="ignore", invalid="ignore"):
        rows = [
            (np.log(np.array(plus.probs)) - np.log(np.array(minus.probs))) / width
            for plus, minus in pairs
        ]
    log_probs = np.nan_to_num(np.array(rows).T, nan=0.0, posinf=0.0, neginf=0.0)
    return Slope(log_probs, np.zeros(len(pairs)), np.zeros(len(pairs)))
