"""Runs the program on every path of the probe, and moves its parameters to see the eligibilities.

The eligibility ∂ ln p(choice; θ)/∂θ of every choice is taken from the program's own probabilities
by central differences: run the same path at θ + εv and at θ − εv. So it needs nothing of the
program but what it does; not how it computes a probability, nor that it computes a log-probability.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import islice

import numpy as np

from eligibility.audit import precision
from eligibility.audit.choices import MOST_PATHS, count_of_paths, paths_after
from eligibility.audit.job import SIZES, Job, ProbeSize
from eligibility.audit.running.policy_directions import Directions, critic_gradient, policy_gradient
from eligibility.audit.running.runner import Runner, run_all
from eligibility.audit.running.sampling_calls import executing_call
from eligibility.audit.running.slopes import (
    Key,
    Slope,
    Target,
    both_ways,
    covering_paths,
    from_graphs,
    slope_of,
)
from eligibility.audit.trace import Draw, Trace

Progress = Callable[[str, int, int], None]  # what is done, runs so far, runs expected
RAN = ("updated", "finished")
_SCOUTS = 6
# The first path is one of the longest, so that it promises more paths than there are; it decides
# alone whether they are few enough where it promises that many times fewer, or more.
_FEWER, _MORE = 4, 10
_ENOUGH = 40  # paths from whose probability the number of the others is foreseen
_FEW_TENSORS = 4  # along which resampled runs are compared
_HOPELESS = 200  # choices of one path, of which no size of the probe makes few paths
# Long paths tell more and take longer: at most this many steps in all, but at least these paths.
_SAMPLED_STEPS, _LONG_PATHS = 20_000, 6


@dataclass(frozen=True)
class Survey:
    """Everything that was observed.

    Attributes:
        traces: One a path.
        exhaustive: Whether they are all the paths; else they were drawn at random.
        predicted: The number of paths expected before the run.
        size: How much of the probe was used.
        raised: Whether the program ran in double precision.
        directions: (tensor, index) of each of the D probing directions.
        slopes: Slopes of every choice that made an action.
        shared: Directions of the policy's that the critic's own gradient depends on.
        beyond: Whether the policy's gradient depends on what is seen where an episode has ended.
        blind: Whether it is known not to depend on what is seen where a limit cuts an episode off.
        targets: Of each choice that made an action, the distribution that is learned in its place,
            with its slopes, where that is not the one that acts; else empty.
    """

    traces: tuple[Trace, ...]
    exhaustive: bool
    predicted: int
    size: ProbeSize
    raised: bool
    directions: tuple[tuple[int, int], ...] = ()
    slopes: dict[Key, Slope] | None = None
    shared: Directions = frozenset()
    beyond: bool = False
    blind: bool = False
    targets: Mapping[Key, Target] = field(default_factory=dict)

    @cached_property
    def acting(self) -> Directions:
        """Directions that any action's probability depends on."""
        moving = np.zeros(len(self.directions), dtype=bool)
        learned = [target.slope for target in self.targets.values()]
        for slope in learned or (self.slopes or {}).values():
            moving |= (slope.log_probs != 0).any(axis=0) | (slope.loc != 0) | (slope.scale != 0)
        moved = zip(self.directions, moving, strict=True)
        return frozenset(direction for direction, moves in moved if moves)

    @property
    def policy(self) -> frozenset[int]:
        """Tensors that any action's probability depends on."""
        return frozenset(tensor for tensor, _ in self.acting)

    @property
    def own_directions(self) -> Directions:
        """Those that are the policy's alone; if none are, all of the policy's."""
        return (self.acting - self.shared) or self.acting

    @property
    def own(self) -> frozenset[int]:
        """Their tensors."""
        return frozenset(tensor for tensor, _ in self.own_directions)

    @property
    def directions_each(self) -> int:
        """Probing directions of each tensor."""
        return 1 + max(direction for _, direction in self.directions)

    @property
    def single(self) -> bool:
        """Whether some of the program's arithmetic was in single precision."""
        return not self.raised or any(precision.SINGLE in trace.notes for trace in self.traces)

    @property
    def unit(self) -> float:
        """Unit roundoff of the precision that the program ran in."""
        return precision.UNIT_SINGLE if self.single else precision.UNIT_DOUBLE


def survey(runner: Runner, max_paths: int, samples: int, progress: Progress) -> Survey:
    """Observe the program that ``runner`` runs."""
    raised, first = _first_run(runner)
    asked: Job | None = Job((), SIZES[0], raised=raised)
    if first.outcome not in RAN:
        other = _other_run(runner, first, raised)
        if other is None:
            return Survey((first,), False, 0, SIZES[0], raised)
        first, asked = other, None
    count = directions_each(len(first.shapes))
    predicted = MOST_PATHS
    for size in SIZES if len(first.draws) <= _HOPELESS else ():
        job = Job((), size, directions=count, raised=raised)
        begun = first if job == asked else runner.run(job)
        predicted = count_of_paths([begun.probability])
        if max_paths < _FEWER * predicted and predicted < _MORE * max_paths:
            scouts = run_all(runner, (replace(job, seed=seed) for seed in range(_SCOUTS)))
            predicted = count_of_paths(trace.probability for trace in scouts)
        if predicted > max_paths:
            continue
        traces = enumerated(runner, job, 2 * max_paths, predicted, progress, begun=begun)
        if traces is not None:
            return with_slopes(Survey(traces, True, predicted, size, raised), runner, job, progress)
    job = Job((), SIZES[0], directions=count, raised=raised)
    samples = min(samples, max(_LONG_PATHS, _SAMPLED_STEPS // max(len(first.steps), 1)))
    drawn = sampled(runner, [replace(job, seed=seed) for seed in range(samples)], progress)
    result = Survey(drawn, False, predicted, SIZES[0], raised)
    return with_slopes(result, runner, job, progress)


def resampled(base: Survey, runner: Runner, runs: int, progress: Progress) -> Survey:
    """Independent runs of the same program, everything random in them redrawn.

    The eligibilities are taken along one direction of each of a few tensors of the policy: where
    other random numbers make all runs different, nothing that is known of one helps another.
    """
    policy = sorted(base.policy)[-_FEW_TENSORS:]
    job = Job((), base.size, directions=1, raised=base.raised)
    jobs = [replace(job, seed=seed, noise=seed) for seed in range(runs)]
    drawn = enumerate(sampled(runner, jobs, progress))
    traces = tuple(replace(trace, noise=seed) for seed, trace in drawn)
    result = replace(base, traces=traces, exhaustive=False)
    return with_slopes(result, runner, job, progress, policy)


def sampled(
    runner: Runner, jobs: list[Job], progress: Progress, what: str = "sampled paths"
) -> tuple[Trace, ...]:
    """Paths that were drawn at random."""
    traces = []
    for number, trace in enumerate(run_all(runner, jobs)):
        progress(what, number, len(jobs))
        traces.append(trace)
    return tuple(traces)


def _first_run(runner: Runner) -> tuple[bool, Trace]:
    """The first path, in double precision if the program bears it."""
    first = runner.run(Job((), SIZES[0]))
    if first.outcome == "error" and any(word in first.detail for word in precision.DTYPE_WORDS):
        own = runner.run(Job((), SIZES[0], raised=False))
        if own.outcome in RAN:
            return False, own
    return True, first


def _other_run(runner: Runner, failed: Trace, raised: bool) -> Trace | None:
    """A path on which the program runs, where its first one failed after steps; None if none does.

    What fails by the number of steps of an episode does not fail on all of them.
    """
    if failed.outcome != "error" or not failed.steps:
        return None
    runs = (runner.run(Job((), SIZES[0], seed=seed, raised=raised)) for seed in range(_SCOUTS))
    return next((run for run in runs if run.outcome in RAN and run.updates), None)


def directions_each(tensors: int) -> int:
    """Directions of each tensor: enough together to tell the actions of a path apart."""
    return 3 if tensors <= 6 else 2 if tensors <= 12 else 1


def enumerated(
    runner: Runner,
    job: Job,
    cap: int,
    predicted: int,
    progress: Progress,
    what: str = "paths",
    begun: Trace | None = None,
) -> tuple[Trace, ...] | None:
    """Every path in depth-first order; None if there are more than ``cap``.

    The choices that ``job`` prescribes are conditions: they are the same on every path. ``begun``
    is the first one, if it has been run.
    """
    traces: list[Trace] = []
    done, given = 0.0, len(job.prescribed)
    started: dict[tuple[int, ...], Callable[[], Trace]] = {}
    prescribed: tuple[int, ...] | None = job.prescribed
    if begun is not None:
        started[job.prescribed] = partial(replace, begun)
    while prescribed is not None:
        if len(traces) >= cap:
            return None
        progress(what, len(traces), max(predicted, len(traces)))
        ran = started.pop(prescribed, None) or runner.start(replace(job, prescribed=prescribed))
        traces.append(replace(ran(), given=given))
        following = [*islice(paths_after(traces[-1], given), runner.ahead)]
        prescribed = following[0] if following else None
        for path in following:
            if path not in started:
                started[path] = runner.start(replace(job, prescribed=path))
        done += traces[-1].probability
        if len(traces) >= _ENOUGH and len(traces) > cap * done:
            return None  # at this rate there would be more
    return tuple(traces)


def with_slopes(
    base: Survey, runner: Runner, job: Job, progress: Progress, tensors: Sequence[int] | None = None
) -> Survey:
    """The survey with the eligibility of every choice that made an action.

    Along ``tensors`` only, if they are given: what the others do is known of ``base`` then.
    """
    ran = [trace for trace in base.traces if trace.outcome in RAN]
    if not ran:
        return base
    all_of_them = range(max(len(trace.shapes) for trace in ran))
    directions = tuple((t, d) for t in tensors or all_of_them for d in range(job.directions))
    told = replace(base, directions=directions, slopes=None)
    told = replace(told, slopes=_slopes(told, ran, runner, job, progress))
    told = replace(told, traces=tuple(_stopped(trace, told.acting) for trace in base.traces))
    if tensors:
        return told
    rounding = 1e-3 if base.single else 1e-6
    told = replace(told, shared=_shared_with_critic(runner, job, ran, told.acting, rounding))
    if not has_critic(told):
        return told
    beyond, blind = (look(runner, job, told, rounding) for look in (_looks_beyond, _is_blind))
    return replace(told, beyond=beyond, blind=blind)


def _stopped(trace: Trace, acting: Directions) -> Trace:
    """The path as a failed one, if an error came after a critic's step and before the policy's."""
    failed = trace.outcome == "updated" and trace.detail and trace.updates
    if failed and not np.any(policy_gradient(trace, acting)):
        return replace(trace, outcome="error")
    return trace


def slopes_of_path(base: Survey, trace: Trace, runner: Runner, job: Job) -> dict[Key, Slope]:
    """The slopes of one path alone, run as ``job`` says."""
    return _slopes(replace(base, slopes=None), [trace], runner, job, silent)


def with_more_slopes(base: Survey, runner: Runner, job: Job) -> Survey:
    """The survey with the eligibilities that its ``slopes`` lack, along its ``directions``."""
    ran = [trace for trace in base.traces if trace.outcome in RAN]
    found = _slopes(base, ran, runner, job, silent)
    return replace(base, slopes={**(base.slopes or {}), **found})


def silent(what: str, done: int, expected: int) -> None:
    """The progress of what nobody watches."""


def _slopes(
    base: Survey, ran: list[Trace], runner: Runner, job: Job, progress: Progress
) -> dict[Key, Slope]:
    """The slopes that ``base`` lacks along its directions: from graphs, or else by differences."""
    call, known, directions = executing_call(base.traces), base.slopes or {}, base.directions
    cover = covering_paths(ran, call, known)
    if not cover:
        return {}
    job = replace(job, distance=precision.step_length(base.unit))
    slopes = from_graphs(runner, job, cover, directions, precision.tolerance(base.unit))
    cover = covering_paths(ran, call, known | slopes)
    columns: dict[Key, list[tuple[Draw, Draw]]] = {key: [] for _, keys in cover for key in keys}
    for number, (tensor, direction) in enumerate(directions if cover else ()):
        progress("directions", number, len(directions))
        pairs = both_ways(runner, replace(job, tensor=tensor, direction=direction), cover)
        for key, pair in pairs.items():
            columns[key].append(pair)
    return slopes | {key: slope_of(key, pairs, job.distance) for key, pairs in columns.items()}


def _shared_with_critic(
    runner: Runner, job: Job, traces: list[Trace], acting: Directions, rounding: float
) -> Directions:
    """Directions of the policy that move the gradient along those outside it: a shared trunk."""
    long = [trace for trace in traces if len(trace.steps) <= _HOPELESS]
    trace = max(long or traces[:1], key=lambda item: len(item.steps))
    still = critic_gradient(trace, acting)
    if not np.any(still):
        return frozenset()
    # what a continuous action earns depends on its value, which moves with the policy
    earned = tuple(step.reward for step in trace.steps if step.executed)

    def changes(direction: int, *tensors: int) -> bool:
        along = replace(job, prescribed=trace.picked, rewards=earned, direction=direction)
        along = replace(along, tensor=tensors[0], also=tensors[1:], distance=1e-2)
        moved = critic_gradient(runner.run(along), acting)
        return bool(np.abs(moved - still).max() > rounding * np.abs(still).max())

    shared: set[tuple[int, int]] = set()
    for direction in sorted({direction for _, direction in acting}):
        tensors = sorted(tensor for tensor, own in acting if own == direction)
        if changes(direction, *tensors):
            shared |= {(tensor, direction) for tensor in tensors if changes(direction, tensor)}
    return frozenset(shared)


def _looks_beyond(runner: Runner, job: Job, known: Survey, rounding: float) -> bool:
    """Whether the policy learns something else if the last observation of an episode is another.

    Of a path whose one terminated episode ends right before the update, so that nothing is seen
    after it.
    """
    for trace in known.traces:
        ended = [number for number, step in enumerate(trace.steps, 1) if step.terminated]
        if trace.updates and ended == [trace.updates[-1].steps_before]:
            return _learns_from_end(runner, job, known, trace, "terminated", rounding)
    return False


def _is_blind(runner: Runner, job: Job, known: Survey, rounding: float) -> bool:
    """Whether what is seen where a time limit cuts an episode off makes no difference."""
    for trace in known.traces:
        before = trace.updates[-1].steps_before if trace.updates else 0
        if any(step.truncated for step in trace.steps[:before]):
            return not _learns_from_end(runner, job, known, trace, "truncated", rounding)
    return False


def _learns_from_end(
    runner: Runner, job: Job, known: Survey, trace: Trace, kind: str, rounding: float
) -> bool:
    """Whether the policy's gradient changes with the observation at this kind of end."""
    own = known.acting - known.shared
    other = runner.run(replace(job, prescribed=trace.picked, other_end=kind))
    still, now = (policy_gradient(each, own) for each in (trace, other))
    return still.shape == now.shape and bool(
        np.abs(now - still).max(initial=0.0) > rounding * np.abs(still).max(initial=0.0)
    )


def has_critic(survey: Survey) -> bool:
    """Whether the optimizer also trains what no action depends on."""
    return any(np.any(critic_gradient(trace, survey.acting)) for trace in survey.traces)
