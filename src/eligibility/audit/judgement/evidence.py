"""The observations as arrays: decisions, their eligibilities, and what the optimizer was given.

Letters: P paths, I decisions of the longest path (shorter ones are padded), D probing directions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eligibility.audit.arrays import Array, Booleans, Integers
from eligibility.audit.job import OWN_STATES, STATES
from eligibility.audit.running.sampling_calls import executed_draws, executing_call
from eligibility.audit.running.slopes import Key, Slope, key_of
from eligibility.audit.running.survey import RAN, Survey
from eligibility.audit.trace import Draw, Step, Trace

# Decisions of a batch beyond which a fit takes a millisecond and more, so that fewer are tried.
LONG_BATCH = 200
# What is taken of each step as it is.
_READ = {
    "reward": float, "time": int, "episode": int, "environment": int, "state": int,
    "next_state": int, "terminated": bool, "truncated": bool,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Evidence:
    """What all rules are compared with.

    Attributes:
        probability: [P] of each path; equal ones where the paths were drawn at random.
        ascent: [P, D] minus the gradient that the optimizer was given, summed over its steps.
        eligibility: [P, I, D] ∂ ln π(a|s) of each executed action.
        entropy: [P, I, D] ∂H(π(·|s)) of each executed action's distribution.
        present: [P, I] whether there is such a decision.
        used: [P, I] whether its optimizer step uses it; else only its reward counts.
        reward: [P, I].
        time: [P, I] step of the episode.
        episode: [P, I] number of the episode within the path.
        environment: [P, I].
        row: [P, I] how often that environment had stepped before, ignored actions included.
        rows: [P] steps of the environment that stepped most often.
        state: [P, I] where the action was taken.
        next_state: [P, I] where it led.
        action: [P, I] a different number for each action.
        terminated: [P, I].
        truncated: [P, I].
        log_prob: [P, I] ln π(a|s).
        log_ratio: [P, I] the same less that of the distribution that acted, which may be another.
        scored: Whether every action was drawn from a distribution that the parameters move.
        remembers: Whether the policy follows more than the state: it has several laws in one.
    """

    probability: Array
    ascent: Array
    eligibility: Array
    entropy: Array
    present: Booleans
    used: Booleans
    reward: Array
    time: Integers
    episode: Integers
    environment: Integers
    row: Integers
    rows: Integers
    state: Integers
    next_state: Integers
    action: Integers
    terminated: Booleans
    truncated: Booleans
    log_prob: Array
    log_ratio: Array
    scored: bool
    remembers: bool = False

    @property
    def paths(self) -> int:
        """P."""
        return len(self.probability)

    @property
    def long(self) -> bool:
        """Whether only the likeliest rules are tried."""
        return bool(self.present.shape[1] > LONG_BATCH)

    @property
    def identifiable(self) -> bool:
        """Whether no path has more decisions than there are directions to tell them apart."""
        return bool(self.present.sum(axis=1).max(initial=0) <= self.ascent.shape[1])

    @property
    def states(self) -> int:
        """How many states there are, with the terminal one; the same for all paths of a program."""
        highest = int(max(self.state.max(initial=0), self.next_state.max(initial=0)))
        return STATES + 1 if highest <= STATES else OWN_STATES

    def gradient(self, weights: Array) -> Array:
        """[P, D] Σ_i w_i ∂ ln π(a_i|s_i) for ``weights`` [P, I]."""
        gradient: Array = np.einsum("pi,pid->pd", weights, self.eligibility)
        return gradient

    def restricted(self, mask: Booleans) -> Evidence:
        """With only the decisions of ``mask`` [P, I]."""
        keep = mask[..., None]
        return replace(
            self,
            present=self.present & mask,
            used=self.used & mask,
            eligibility=self.eligibility * keep,
            entropy=self.entropy * keep,
        )

    def first(self, count: int) -> Evidence:
        """With all rewards, of which only the first decisions are reinforced."""
        keep = (np.arange(self.present.shape[1]) < count)[None, :, None]
        return replace(self, eligibility=self.eligibility * keep, entropy=self.entropy * keep)

    @property
    def finite(self) -> Evidence:
        """The paths whose gradients are finite."""
        return self.where(np.asarray(np.isfinite(self.ascent).all(axis=1)))

    def where(self, keep: Booleans | Integers) -> Evidence:
        """The paths of ``keep`` [P], or those of these numbers."""
        cut: dict[str, Any] = {
            name: value[keep] for name, value in vars(self).items() if isinstance(value, np.ndarray)
        }
        return replace(self, **cut)


@lru_cache(maxsize=16)
def episodes_of(evidence: Evidence) -> tuple[Array, ...]:
    """[n, D] each: the eligibilities of every episode that is like no other.

    What weighs each episode by itself gets no more equations from other batches of the same ones.
    """
    return tuple(
        evidence.eligibility[p, positions] for (p, positions), *_ in kinds_of(evidence).values()
    )


@lru_cache(maxsize=16)
def kinds_of(evidence: Evidence) -> dict[tuple[Any, ...], list[tuple[int, Integers]]]:
    """The episodes that are like one another: of each its path and its decisions' positions."""
    episodes: dict[tuple[Any, ...], list[tuple[int, Integers]]] = {}
    used: Booleans = np.asarray(evidence.eligibility.any(axis=2))
    columns = (evidence.environment, evidence.episode, evidence.time, evidence.state,
               evidence.action, evidence.reward, evidence.next_state, evidence.terminated,
               evidence.truncated, used)  # fmt: skip
    for p, present in enumerate(evidence.present):
        rows = np.stack([column[p][present] for column in columns], axis=1)
        actors, of = np.unique(rows[:, :2], axis=0, return_inverse=True)
        for number in range(len(actors)):
            own = of.ravel() == number
            kind = tuple(rows[own, 2:].ravel().tolist())
            episodes.setdefault(kind, []).append((p, np.flatnonzero(present)[own]))
    return episodes


@lru_cache(maxsize=32)
def histories(evidence: Evidence) -> tuple[Integers, Integers, int]:
    """[P, I] number of the states that each decision's episode has met, also with the next one."""
    numbers: dict[tuple[int, ...], int] = {}
    before, after = np.zeros_like(evidence.state), np.zeros_like(evidence.state)
    for p, present in enumerate(evidence.present):
        met: dict[tuple[int, int], tuple[int, ...]] = {}
        for i in np.flatnonzero(present):
            actor = int(evidence.environment[p, i]), int(evidence.episode[p, i])
            own = (*met.get(actor, ()), int(evidence.state[p, i]))
            met[actor] = own
            before[p, i] = numbers.setdefault(own, len(numbers))
            longer = (*own, int(evidence.next_state[p, i]))
            after[p, i] = numbers.setdefault(longer, len(numbers))
    return before, after, max(len(numbers), 1)


def merged(evidence: Evidence) -> Evidence:
    """The paths, with those merged into one whose steps are the same.

    A program that explores with probability ε first draws whether it explores, and then the action.
    The action's eligibility is the mean over all ways in which it can be drawn (Rao and Blackwell).
    """
    columns = ("environment", "episode", "time", "state", "action", "reward", "next_state",
               "terminated", "truncated", "present")  # fmt: skip
    steps = np.concatenate([getattr(evidence, name).astype(float) for name in columns], axis=1)
    _, first, of = np.unique(steps, axis=0, return_index=True, return_inverse=True)
    if len(first) == evidence.paths:
        return evidence
    share = np.zeros((len(first), evidence.paths))
    share[of.ravel(), np.arange(evidence.paths)] = np.maximum(evidence.probability, 1e-300)
    total = share.sum(axis=1)
    share /= total[:, None]

    def mean(values: Array) -> Array:
        return np.asarray(np.einsum("mp,p...->m...", share, values))

    return replace(
        evidence.where(first),
        probability=total,
        ascent=mean(evidence.ascent),
        eligibility=mean(evidence.eligibility),
        entropy=mean(evidence.entropy),
        log_prob=mean(evidence.log_prob),
        log_ratio=np.log(mean(np.exp(evidence.log_ratio))),
    )


def joined(first: Evidence, second: Evidence) -> Evidence:
    """The paths of both, with the same directions."""
    width = max(first.present.shape[1], second.present.shape[1])

    def padded(values: NDArray[Any]) -> NDArray[Any]:
        missing = width - values.shape[1]
        return np.pad(values, [(0, 0), (0, missing), *[(0, 0)] * (values.ndim - 2)])

    both = {}
    for name, value in vars(first).items():
        if isinstance(value, np.ndarray):
            pair = [value, getattr(second, name)]
            decisions = value.ndim > 1 and name != "ascent"
            both[name] = np.concatenate([padded(each) for each in pair] if decisions else pair)
    return Evidence(
        **both,
        scored=first.scored and second.scored,
        remembers=first.remembers or second.remembers,
    )


def gather(survey: Survey, ignored: bool = False, component: int | None = None) -> Evidence | None:
    """The arrays of a survey, on the parameters that only the policy uses; None if there are none.

    With ``ignored``, the actions that a vector environment ignored while it reset are decisions
    too: each the first step of the episode that begins, without a reward. With ``component``, only
    that one of an action's components counts as chosen.

    Where a critic shares tensors with the policy, its loss moves them too, by right; the tensors
    that are the policy's alone then decide, since one weight an action governs them all.
    """
    ran = [trace for trace in survey.traces if trace.outcome in RAN and trace.steps]
    traces = [replace(trace, steps=_decisions(trace.steps, ignored)) for trace in ran]
    if not traces or not survey.slopes:
        return None
    numbered = [_rows(trace.steps, ignored) for trace in ran]
    columns = own_columns(survey)
    if not columns.any():
        return None
    call = executing_call(survey.traces)
    longest = max(len(trace.steps) for trace in traces)
    taken: dict[tuple[float, ...], int] = {}
    shape = (len(traces), longest)
    eligibility = np.zeros((*shape, int(columns.sum())))
    entropy = np.zeros_like(eligibility)
    log_prob, log_ratio = np.zeros(shape), np.zeros(shape)
    scored = True
    laws: set[Key] = set()
    for p, trace in enumerate(traces):
        for i, step in enumerate(trace.steps):
            draws = executed_draws(step, call)
            scored = scored and bool(draws)
            for number, position in enumerate(draws):
                if component not in (None, number):
                    continue
                draw = trace.draws[position]
                key = key_of(draw, step.state, number)
                laws.add(key)
                target = survey.targets.get(key)
                slope = target.slope if target else survey.slopes.get(key)
                if slope is None or (survey.targets and target is None):
                    scored = False
                    continue
                acted, draw = draw, target.of(draw) if target else draw
                eligibility[p, i] += _eligibility(draw, slope)[columns]
                entropy[p, i] += _entropy(draw, slope)[columns]
                log_prob[p, i] += _log_prob(draw)
                log_ratio[p, i] += _log_prob(draw) - _log_prob(acted)
    present = _padded(traces, longest, lambda step: True, bool)
    columns_of = {
        name: _padded(traces, longest, attrgetter(name), kind) for name, kind in _READ.items()
    }
    return Evidence(
        probability=np.array(
            [trace.probability if survey.exhaustive else 1.0 / len(traces) for trace in traces]
        ),
        ascent=np.array([ascents(trace, survey).sum(axis=0)[columns] for trace in traces]),
        eligibility=eligibility,
        entropy=entropy,
        present=present,
        used=present,
        row=np.array([own + [0] * (longest - len(own)) for own, _ in numbered], dtype=int),
        rows=np.array([count for _, count in numbered], dtype=int),
        action=_padded(traces, longest, lambda s: taken.setdefault(s.action, len(taken)), int),
        log_prob=log_prob,
        log_ratio=log_ratio,
        scored=scored,
        remembers=len(laws) > len({(state, number) for state, number, *_ in laws}),
        **columns_of,
    )


def hides_values(survey: Survey) -> bool:
    """Whether every path meets the same states: any numbers of theirs are constants of the times.

    So it is where actions are continuous and decide nothing.
    """
    met = {(step.time, step.state) for trace in survey.traces for step in trace.steps}
    return len(met) == len({time for time, _ in met})


def own_columns(survey: Survey) -> Booleans:
    """[all directions] which of them are the policy's alone."""
    return np.array([each in survey.own_directions for each in survey.directions], dtype=bool)


def _decisions(steps: tuple[Step, ...], ignored: bool) -> tuple[Step, ...]:
    if not ignored:
        return tuple(step for step in steps if step.executed)
    late = {(step.environment, step.episode) for step in steps if not step.executed}
    return tuple(
        replace(step, time=step.time + 1) if (step.environment, step.episode) in late else step
        for step in steps
    )


def _rows(steps: tuple[Step, ...], ignored: bool) -> tuple[list[int], int]:
    """How often each decision's environment had stepped before it; and the highest count."""
    counted: dict[int, int] = {}
    own = []
    for step in steps:
        row = counted.get(step.environment, 0)
        counted[step.environment] = row + 1
        if step.executed or ignored:
            own.append(row)
    return own, max(counted.values())


def _padded(
    traces: list[Trace], longest: int, read: Callable[[Step], Any], kind: type
) -> NDArray[Any]:
    rows = [[read(step) for step in t.steps] + [0] * (longest - len(t.steps)) for t in traces]
    return np.array(rows, dtype=kind)


def _eligibility(draw: Draw, slope: Slope) -> Array:
    """The eligibilities of a Gaussian: Williams 1992, §6, eq. (12) and the one for σ."""
    if draw.density is not None:
        return draw.density.score[0] * slope.loc + draw.density.score[1] * slope.scale
    if draw.loc is None or draw.scale is None or draw.value is None:
        row: Array = slope.log_probs[draw.picked]
        return row
    distance = draw.value - draw.loc
    variance = draw.scale**2
    along_scale = (distance**2 - variance) / draw.scale**3
    return distance / variance * slope.loc + along_scale * slope.scale


def _entropy(draw: Draw, slope: Slope) -> Array:
    """∂H: −Σ p ∂ln p (1 + ln p), and ∂ ln σ for a Gaussian."""
    if draw.density is not None:
        return draw.density.entropy[0] * slope.loc + draw.density.entropy[1] * slope.scale
    if draw.scale is not None:
        return slope.scale / draw.scale
    probs = np.array(draw.probs)
    logs = np.log(np.where(probs > 0, probs, 1.0))
    gradient: Array = -(probs * (1.0 + logs)) @ slope.log_probs
    return gradient


def _log_prob(draw: Draw) -> float:
    if draw.density is not None:
        return draw.density.log
    if draw.loc is None or draw.scale is None or draw.value is None:
        return float(np.log(draw.probs[draw.picked]))
    standard = (draw.value - draw.loc) / draw.scale
    return float(-0.5 * standard**2 - np.log(draw.scale) - 0.5 * np.log(2 * np.pi))


def ascents(trace: Trace, survey: Survey) -> Array:
    """[U, D] over all directions: of each of the optimizers' steps."""
    rows = np.zeros((len(trace.updates), len(survey.directions)))
    for number, update in enumerate(trace.updates):
        for column, (tensor, direction) in enumerate(survey.directions):
            row = update.along(tensor)
            if row is not None:
                rows[number, column] = row[direction]
    return rows
