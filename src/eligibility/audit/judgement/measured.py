"""The credit of a program, measured: M[i, j], how the weight of decision i moves with reward j.

The audit owns the rewards, so it replays a path with others. The gradient is g = Σ_i w_i e_i with
the eligibilities e_i of the path; its slope in reward j is Σ_i M[i, j] e_i, and M follows by least
squares. Baselines, a critic's values and entropy do not depend on rewards: they drop out of M.

Every observation shown gets different small features, so that no two decisions have the same
eligibility; where a policy has few parameters, the same path with other features adds equations.

Letters: I decisions, N rewards, D probing directions times views.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from eligibility.audit.arrays import Array
from eligibility.audit.job import Job
from eligibility.audit.judgement.evidence import Evidence, gather
from eligibility.audit.precision import UNIT_DOUBLE
from eligibility.audit.quadrature import COARSE
from eligibility.audit.running.runner import Runner, run_all
from eligibility.audit.running.survey import RAN, Survey, slopes_of_path
from eligibility.audit.trace import Trace

_STEPS = 14  # decisions of a path beyond which it is not replayed
_VIEWS = 4  # features that a path is shown with, at most
_RANK = 1e-5  # relative size below which eligibilities count as dependent
_CRITIC_STEP = 1e-1  # of a tensor of a critic
_SMALL_STEP = 1e-4  # of a reward, where the program is not linear in it
_LARGE = 11.0  # a factor of all rewards, which changes no order of them, as of an elite's episodes


@dataclass(frozen=True, eq=False)
class Measured:
    """What the replays of one path tell.

    Attributes:
        evidence: The path, as it was replayed; its arrays have one row.
        credit: [I, N] M; of a program that rescales its weights, up to a factor.
        offset: [I] weights without any reward; zeros where ``kind`` is not "linear".
        kind: "linear", "rescaled" (w = s(r)·(M r + b)), "silent" (M = 0), "valued" (M = 0, and a
            critic moves the weights), "stepwise" (M = 0 but for jumps that follow the size of the
            rewards) or "other".
        outside: Share of the slopes in the rewards outside the span of the eligibilities.
        runs: Replays.
    """

    evidence: Evidence
    credit: Array
    offset: Array
    kind: str
    outside: float
    runs: int


def measure(base: Survey, runner: Runner, besides: Measured | None = None) -> Measured | None:
    """The credit on one path of a survey; None where it cannot be replayed or told apart.

    With ``besides``, on one with more decisions than that has.
    """
    trace = _longest(base.traces, besides is not None)
    if trace is None or not base.slopes:
        return None
    if besides is not None and _decisions(trace) <= besides.evidence.present.sum():
        return None
    replays = _Replays(base, runner, trace)
    if not replays.add_view(1) and not replays.add_view(0):  # features may forbid an action
        return None
    while not replays.complete:
        if len(replays.views) == _VIEWS or not replays.add_view(len(replays.views) + 1):
            return None
    return _solved(replays)


def is_stepwise(base: Survey, runner: Runner) -> bool:
    """Whether a path of any length has gradients that follow its rewards by whole numbers only.

    And whether it has other rewards. Those that are tried are positive, so that only their signs,
    as some train on, do not change.
    """
    ran = [trace for trace in base.traces if trace.outcome in RAN and trace.updates]
    if not ran:
        return False
    trace = min(ran, key=lambda trace: len(trace.steps))
    job = Job(trace.picked, base.size, raised=base.raised)
    rewards = np.array([step.reward for step in trace.steps if step.executed])
    if (rewards == np.floor(rewards)).all():
        return False
    number = np.arange(len(rewards))
    halves = np.abs(np.floor(rewards)) + 0.5
    others = halves + _SMALL_STEP * np.cos(number), halves + 1.0 + number % 2, _LARGE * halves
    here, near, far, large = (
        [update.ascent for update in runner.run(replace(job, rewards=tuple(given))).updates]
        for given in (halves.tolist(), *(other.tolist() for other in others))
    )
    return here == near and here not in (far, large)


def _decisions(trace: Trace) -> int:
    return sum(step.executed for step in trace.steps)


def _longest(traces: Sequence[Trace], decisions: bool) -> Trace | None:
    """The path that tells most: many steps, several kinds of endings, several actions.

    With ``decisions``, only these count: an environment ignores some actions while it resets.
    """

    def told(trace: Trace) -> int:
        if decisions:
            return _decisions(trace)
        ends = {(step.terminated, step.truncated) for step in trace.steps}
        return len(trace.steps) + 2 * len(ends) + len({step.action for step in trace.steps})

    short = [
        trace
        for trace in traces
        if trace.outcome in RAN and trace.updates and 1 < len(trace.steps) <= _STEPS
    ]
    return max(short, key=told, default=None)


class _Replays:
    """One path, shown with several features, and its gradients for other rewards."""

    def __init__(self, base: Survey, runner: Runner, trace: Trace) -> None:
        each = base.directions_each
        self._job = Job(_off_centre(trace), base.size, directions=each, raised=base.raised)
        self._base, self._runner, self._steps = base, runner, trace.steps
        self.views: list[tuple[Job, Survey, Evidence]] = []
        self.runs = 0

    @property
    def unit(self) -> float:
        """Unit roundoff of the program."""
        return self._base.unit

    @property
    def rewards(self) -> Array:
        """[J] what the path earns; what a continuous action earns depends on its number."""
        _, shown, _ = self.views[0]
        return np.array([step.reward for step in shown.traces[0].steps if step.executed])

    @property
    def parts(self) -> list[Array]:
        """The rows of ``basis`` of each view."""
        return [evidence.eligibility[0].T for _, _, evidence in self.views]

    @property
    def basis(self) -> Array:
        """[D, I] the eligibilities in all views."""
        return np.concatenate(self.parts)

    @property
    def complete(self) -> bool:
        """Whether the views tell all decisions apart."""
        rank = int(np.linalg.matrix_rank(self.basis, rtol=_RANK))
        return rank == int(self.basis.shape[1])

    def add_view(self, features: int) -> bool:
        """Show the path with these features; False if it is not the same path then."""
        job = replace(self._job, jitter=features)
        trace = self._run(job)
        if not self._same(trace):
            return False
        slopes = slopes_of_path(self._base, trace, self._runner, job)
        shown = replace(self._base, slopes=slopes, exhaustive=False, traces=(trace,))
        evidence = gather(shown)
        if evidence is None or not evidence.scored:
            return False
        self.views.append((job, shown, evidence))
        return True

    def gradients(self, rewards: Sequence[Array]) -> list[Array]:
        """[D] the program's in all views, for each; NaN where a run goes another way."""
        jobs = (
            replace(job, rewards=tuple(given.tolist()))
            for given in rewards
            for job, _, _ in self.views
        )
        traces = run_all(self._runner, jobs)
        self.runs += len(rewards) * len(self.views)
        return [
            np.concatenate([self._ascent(view, next(traces)) for view in self.views])
            for _ in rewards
        ]

    def _ascent(self, view: tuple[Job, Survey, Evidence], trace: Trace) -> Array:
        _, shown, evidence = view
        found = gather(replace(shown, traces=(trace,))) if self._same(trace) else None
        return np.full(evidence.ascent.shape[1], np.nan) if found is None else found.ascent[0]

    def slopes(self, at: Array, step: float) -> Array:
        """[D, N] central differences in each reward."""
        moved = [at + sign * step * unit for unit in np.eye(len(at)) for sign in (1.0, -1.0)]
        found = self.gradients(moved)
        columns = [
            (on - back) / (2.0 * step) for on, back in zip(found[::2], found[1::2], strict=True)
        ]
        return np.array(columns).T

    def follows_critic(self) -> bool:
        """Whether the gradient moves with a tensor that no action depends on."""
        job, shown, evidence = self.views[0]
        for tensor in {tensor for tensor, _ in self._base.directions} - self._base.policy:
            trace = self._run(replace(job, tensor=tensor, distance=_CRITIC_STEP))
            found = gather(replace(shown, traces=(trace,))) if self._same(trace) else None
            if found is not None and not np.allclose(found.ascent, evidence.ascent, rtol=1e-4):
                return True
        return False

    def _run(self, job: Job) -> Trace:
        self.runs += 1
        return self._runner.run(job)

    def _same(self, trace: Trace) -> bool:
        kept = ("environment", "episode", "time", "state", "next_state", "executed")
        return bool(trace.outcome in RAN and trace.probability) and [
            [getattr(step, name) for name in kept] for step in trace.steps
        ] == [[getattr(step, name) for name in kept] for step in self._steps]


def _off_centre(trace: Trace) -> tuple[int, ...]:
    """The outcomes of a path, without normal numbers that are the mean itself.

    Two of those have the same eligibility, whatever the policy is shown.
    """
    picked = list(trace.picked)
    for number, draw in enumerate(trace.draws):
        if draw.loc is not None and draw.value == draw.loc and draw.density is None:
            picked[number] = number % 2 * (COARSE - 1)
    return tuple(picked)


def _solved(replays: _Replays) -> Measured | None:
    rewards = replays.rewards
    other = rewards + np.cos(1.0 + 2.0 * np.arange(len(rewards)))
    units = np.eye(len(rewards))
    here, there, *each = replays.gradients([rewards, other, *(rewards + unit for unit in units)])
    slopes = np.array([moved - here for moved in each]).T
    basis, rounding = replays.basis, 1e-7 if replays.unit == UNIT_DOUBLE else 1e-3
    inverse = np.linalg.pinv(basis, rcond=_RANK)
    size = max(float(np.linalg.norm(here)), float(np.linalg.norm(there)))
    if not np.isfinite([*here, *there]).all() or not np.isfinite(slopes).all():
        return None
    off = float(np.linalg.norm(here + slopes @ (other - rewards) - there))
    kind, credit = "linear", inverse @ slopes
    if float(np.abs(slopes).max()) <= rounding * size:
        kind = "valued" if replays.follows_critic() else "silent"
    elif off > rounding * size:
        slopes = replays.slopes(rewards, _SMALL_STEP)
        later = replays.slopes(other, _SMALL_STEP)
        found = _rescaled(inverse @ here, inverse @ there, inverse @ slopes, inverse @ later)
        kind, credit = ("other", inverse @ slopes) if found is None else ("rescaled", found)
        still = float(np.abs(np.stack([slopes, later])).max()) <= rounding * size
        if still and not np.array_equal(replays.gradients([_LARGE * rewards])[0], here):
            kind = "stepwise"
    # without a form, weights may follow what is shown: a critic's values under a deviation
    parts = replays.parts if kind == "other" else [basis]
    ends = np.cumsum([len(part) for part in parts])[:-1]
    left = [rows - part @ np.linalg.lstsq(part, rows, rcond=_RANK)[0]
            for part, rows in zip(parts, np.split(slopes, ends), strict=True)]  # fmt: skip
    outside = float(np.linalg.norm(np.concatenate(left)))
    outside /= max(float(np.linalg.norm(slopes)), 1e-300)
    offset = inverse @ here - credit @ rewards if kind == "linear" else np.zeros(len(credit))
    return Measured(replays.views[0][2], credit, offset, kind, outside, replays.runs)


def _rescaled(here: Array, there: Array, slopes: Array, later: Array) -> Array | None:
    """[I, N] X of weights w = s(r)·(X r + b), whatever s is; None if they are not of this form.

    Their slopes are s X + w qᵀ at each point; what is across both points' weights is s X alone, so
    that the ratio of the two s is known, and then X up to a factor.
    """
    weights = np.stack([here, there], axis=1)
    across = np.eye(len(here)) - weights @ np.linalg.pinv(weights)
    first, second = across @ slopes, across @ later
    square = float((second * second).sum())
    if square <= (1e-7 * float(np.linalg.norm(later))) ** 2:
        return None  # too few decisions to tell
    ratio = float((first * second).sum()) / square
    if np.linalg.norm(first - ratio * second) > 1e-4 * np.linalg.norm(first):
        return None
    columns = np.stack([here, -ratio * there], axis=1)
    along = np.linalg.lstsq(columns, slopes - ratio * later, rcond=None)[0]
    credit: Array = slopes - np.outer(here, along[0])
    return credit
