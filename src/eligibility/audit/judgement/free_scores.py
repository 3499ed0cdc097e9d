"""What a program scores, if it does not say so by a call of ``log_prob``.

The vector that an action of a state contributes is left free: −gradient = Σ_i w_i g(s_i, a_i), with
the weights w of a right rule and one unknown vector g for each state and action. If that explains
every path, the credit is right, and g can be compared with the eligibility that it should be.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from eligibility.audit.arrays import Array, Integers
from eligibility.audit.judgement.catalogue import Candidate, candidates
from eligibility.audit.judgement.constants import Constants
from eligibility.audit.judgement.evidence import Evidence, episodes_of, merged
from eligibility.audit.judgement.scoring import Scoring
from eligibility.audit.judgement.timeline import Timeline, timeline
from eligibility.audit.running.sampling_calls import executed_draws, executing_call
from eligibility.audit.running.survey import RAN, Survey, has_critic
from eligibility.audit.trace import Step, Trace

_AGREES = 1e-3  # shares up to which a factor is that of a rule; programs add small numbers to logs
_OPPOSITE = Scoring(
    "scored-other-action",
    "each action is scored as the other one of the two, as with its label flipped",
)
_PROBABILITY = Scoring(
    "probability-not-log-probability",
    "each eligibility is multiplied by the probability of its action",
)
_ATTACHED = Scoring(
    "action-keeps-its-graph",
    "every action contributes only the gradient of −ln σ, whatever the action is",
)

_OTHER_DENSITY = Scoring(
    "behaviour-not-scored",
    "each action is scored by a function of its mean and standard deviation other than its "
    "log-density",
)
_SAME_ACTION = Scoring(
    "most-likely-action-scored",
    "in each state the same action is scored, whichever action was taken",
)
_OTHER_ACTION = Scoring(
    "scored-other-action", "the state of each decision is scored with the action of a neighbour"
)


@dataclass(frozen=True)
class _Groups:
    """The actions of the states that were met.

    Attributes:
        of: [P, I] number of the decision's state and action, or -1.
        state: [G].
        eligibility: [G, D].
        log_prob: [G] ln π(a|s).
    """

    of: Integers
    state: Integers
    eligibility: Array
    log_prob: Array


def what_is_scored(
    survey: Survey,
    evidence: Evidence,
    line: Timeline,
    constants: Constants,
    tolerance: float,
    credited: bool = False,
) -> Scoring | None:
    """What is scored in place of the actions' log-probabilities, where their credit is right.

    Where the eligibilities explain what the rewards move, which is ``credited``, only a factor of
    each real action is looked for: on the replayed path it may be the same for all.
    """
    if evidence.long:
        return None
    volumes = _volumes(survey, evidence)
    if volumes is not None:
        density = _of_density(evidence, line, constants, volumes)
        if density is not None:
            return density
    if credited:
        return None
    if volumes is None:  # paths that differ in what is drawn before an action tell the same
        evidence = merged(evidence)
        line = timeline(evidence)
    valued = has_critic(survey)  # w − V(s) with unknown V adds −V(s) g(s, a), as free as g is
    known = line, constants, tolerance
    if volumes is not None:
        powers = _powers(survey, evidence)
        found = _freed(evidence, powers, valued, *known) if powers is not None else None
        return _OTHER_DENSITY if found and found.strange else None
    same = _freed(evidence, _by_action(evidence, None), valued, *known)
    if same is not None:
        return _SAME_ACTION if same.strange else None
    groups = _groups(evidence)
    own = _freed(evidence, _one_of(groups.of), valued, *known)
    if own is not None:
        return _of_logits(groups, own.free) if own.lacking else _named(groups, own.free)
    for moved in (1, -1):
        found = _freed(evidence, _by_action(evidence, moved), valued, *known)
        if found is not None and found.strange:
            return _OTHER_ACTION
    return None


@dataclass(frozen=True)
class _Freed:
    """Free scores that explain every path with the weights of a right rule.

    Attributes:
        free: [F, D] one vector of each feature.
        lacking: Whether one that is added to all of them is not told.
        strange: Whether they are more than rounding, and no multiple of the eligibilities.
    """

    free: Array
    lacking: bool
    strange: bool


def _freed(
    evidence: Evidence,
    features: Array,
    valued: bool,
    line: Timeline,
    constants: Constants,
    tolerance: float,
) -> _Freed | None:
    """The scores Σ_f x_f g_f with free vectors g of ``features`` x [P, I, F], if they fit."""
    count = features.shape[2]
    unknown = 2 * count if valued else count
    size = float(np.linalg.norm(evidence.ascent))
    for form in _right_forms(line, constants):
        told = evidence.paths if form.crosses_episodes else len(episodes_of(evidence))
        if told < 2 * unknown - valued:
            continue  # fewer equations than would be a proof
        with np.errstate(all="ignore"):
            weights = form.weights(line)
        if not np.isfinite(weights).all():
            continue
        matrix = np.einsum("pi,pif->pf", weights, features)
        if valued:
            ones = replace(form, transform="").finished(line.present.astype(float), line)
            matrix = np.concatenate([matrix, np.einsum("pi,pif->pf", ones, features)], axis=1)
        # weights whose sum is 0 do not tell one vector that is added to all
        lacking = unknown - int(np.linalg.matrix_rank(matrix))
        if lacking > ("whitened" in form.transform or form.transform == "centred"):
            continue
        free: Array = np.asarray(np.linalg.lstsq(matrix, evidence.ascent, rcond=1e-11)[0])
        if np.linalg.norm(evidence.ascent - matrix @ free) < tolerance * size:
            told = float(np.linalg.norm(matrix[:, :count] @ free[:count])) > _AGREES * size
            scores = np.einsum("pif,fd->pid", features, free[:count])
            strange = told and _differ(scores, evidence.eligibility)
            return _Freed(free[:count], bool(lacking), strange)
    return None


def _differ(scores: Array, eligibility: Array) -> bool:
    """Whether no factor makes the one the other."""
    factor = float((scores * eligibility).sum() / (eligibility**2).sum())
    return float(np.linalg.norm(scores - factor * eligibility)) > _AGREES * float(
        np.linalg.norm(scores)
    )


def _one_of(of: Integers) -> Array:
    """[P, I, F] 1 for the number of each decision; no feature where it is -1."""
    chosen: Array = (of[..., None] == np.arange(of.max() + 1)).astype(float)
    return chosen


def _by_action(evidence: Evidence, moved: int | None) -> Array:
    """Features of each state, with the action ``moved`` decisions before; None: with none."""
    keys: dict[tuple[int, float], int] = {}
    of = np.full(evidence.present.shape, -1)
    steps = evidence.present.sum(axis=1)
    for p, i in zip(*np.nonzero(evidence.present), strict=True):
        taken = 0.0 if moved is None else float(evidence.action[p, (i - moved) % steps[p]])
        of[p, i] = keys.setdefault((int(evidence.state[p, i]), taken), len(keys))
    return _one_of(of)


def _powers(survey: Survey, evidence: Evidence) -> Array | None:
    """Features of each state with 1, u and u² of the number u that was drawn; None if several."""
    drawn, decisions = _drawn(survey), _decisions(survey)[1]
    if len(drawn) != evidence.paths or any(len(step) != 1 for path in drawn for step in path):
        return None
    if any(len(step.groups) != 1 for path in decisions for step in path):
        return None  # the action may be made of more than one number
    number = np.zeros(evidence.present.shape)
    for p, path in enumerate(drawn):
        number[p, : len(path)] = [step[0] for step in path]
    states = _by_action(evidence, None)
    return np.concatenate([states * number[..., None] ** power for power in range(3)], axis=2)


def _right_forms(line: Timeline, constants: Constants) -> Iterator[Candidate]:
    forms = candidates(line, constants.discounts, parts=2)
    return (form for form in forms if not form.faults)


def _of_density(
    evidence: Evidence, line: Timeline, constants: Constants, volumes: Array
) -> Scoring | None:
    """What replaces each eligibility ∂ ln p of continuous actions.

    It is p ∂ ln p where the density is scored, and −∂ ln σ where the action keeps its graph.
    """
    size = float(np.linalg.norm(evidence.ascent))
    density = np.exp(evidence.log_prob - volumes)[..., None]
    scored = (
        (_PROBABILITY, density * evidence.eligibility),
        (_ATTACHED, -evidence.entropy * evidence.present[..., None]),
    )
    for form in _right_forms(line, constants):
        with np.errstate(all="ignore"):
            weights = form.weights(line)
        for scoring, scores in scored:
            column = np.einsum("pi,pid->pd", weights, scores)
            square = float((column**2).sum())
            factor = float((column * evidence.ascent).sum()) / square if square else 0.0
            if np.linalg.norm(evidence.ascent - factor * column) < _AGREES * size:
                return scoring
    return None


def _groups(evidence: Evidence) -> _Groups:
    numbers: dict[tuple[float, ...], int] = {}
    first: list[tuple[int, int]] = []
    of = np.full(evidence.present.shape, -1)
    for p, i in zip(*np.nonzero(evidence.present), strict=True):
        key = (float(evidence.state[p, i]), *evidence.eligibility[p, i].round(7).tolist())
        if key not in numbers:
            numbers[key] = len(numbers)
            first.append((int(p), int(i)))
        of[p, i] = numbers[key]
    place = tuple(np.array(first).T)
    return _Groups(of, evidence.state[place], evidence.eligibility[place], evidence.log_prob[place])


def _decisions(survey: Survey) -> tuple[list[Trace], list[list[Step]]]:
    """The paths that ran, and their executed steps."""
    ran = [trace for trace in survey.traces if trace.outcome in RAN and trace.steps]
    return ran, [[step for step in trace.steps if step.executed] for trace in ran]


def _drawn(survey: Survey) -> list[list[list[float | None]]]:
    """The numbers that were drawn for each decision of each path."""
    call = executing_call(survey.traces)
    return [
        [[trace.draws[k].value for k in executed_draws(step, call)] for step in own]
        for trace, own in zip(*_decisions(survey), strict=True)
    ]


def _volumes(survey: Survey, evidence: Evidence) -> Array | None:
    """[P, I] Σ ln(1 − tanh² u) of the numbers u drawn, if the actions rise with tanh u; else 0.

    None where actions are not real numbers.
    """
    drawn = _drawn(survey)
    flat = [number for path in drawn for step in path for number in step]
    if not flat or any(number is None for number in flat):
        return None
    volumes = np.zeros(evidence.present.shape)
    numbers = np.tanh(np.array(flat, dtype=float))
    taken = np.array([n for own in _decisions(survey)[1] for step in own for n in step.action])
    if len(taken) != len(numbers) or len(drawn) != evidence.paths:
        return volumes
    straight = np.polynomial.polynomial.polyfit(numbers, taken, 1)
    off = taken - np.polynomial.polynomial.polyval(numbers, straight)
    if np.abs(off).max() < 1e-6 * np.abs(taken).max():
        for p, path in enumerate(drawn):
            for i, step in enumerate(path):
                volumes[p, i] = np.log(1.0 - np.tanh(np.array(step, dtype=float)) ** 2).sum()
    return volumes


def _named(groups: _Groups, free: Array) -> Scoring | None:
    """The fault in the vectors ``free`` [G, D] that are scored."""
    square = np.maximum((groups.eligibility**2).sum(axis=1), 1e-300)
    factor = (free * groups.eligibility).sum(axis=1) / square
    off = float(np.linalg.norm(free - factor[:, None] * groups.eligibility))
    if off > _AGREES * float(np.linalg.norm(free)):
        return _of_distribution(groups, free) or _of_logits(groups, free)
    if not ((factor > 0).all() or (factor < 0).all()):
        return None
    size, log_prob = np.log(np.abs(factor)), groups.log_prob
    if float(np.ptp(size - log_prob)) < _AGREES:
        return _PROBABILITY
    # of two actions, the other one's eligibility is −π/(1 − π) times that of the one taken
    odds = log_prob - np.log1p(-np.exp(log_prob))
    return _OPPOSITE if (factor < 0).all() and float(np.ptp(size - odds)) < _AGREES else None


def _of_logits(groups: _Groups, free: Array) -> Scoring | None:
    """Scores that lack the normaliser's: less their mean under π they are the eligibilities."""
    for state in np.unique(groups.state):
        own = groups.state == state
        acted = np.exp(groups.log_prob[own])
        if own.sum() < 2 or abs(acted.sum() - 1.0) > 1e-6:
            return None  # not all of its actions were met
        off = free[own] - acted @ free[own] - groups.eligibility[own]
        if float(np.linalg.norm(off)) > _AGREES * float(np.linalg.norm(groups.eligibility[own])):
            return None
    return Scoring(
        "behaviour-not-scored",
        "each action is scored by its log-probability plus a function of the state, as a logit is",
    )


def _of_distribution(groups: _Groups, free: Array) -> Scoring | None:
    """Another distribution q whose scores these are: Σ_a q(a) g(a) = 0, and q is not π."""
    for state in np.unique(groups.state):
        own = groups.state == state
        scores, acted = free[own], np.exp(groups.log_prob[own])
        if own.sum() < 2 or abs(acted.sum() - 1.0) > 1e-6:
            return None  # not all of its actions were met
        size = float(np.linalg.norm(scores))
        if float(np.linalg.norm(acted @ scores)) < _AGREES * size:
            continue
        null = np.linalg.svd(scores.T)[2][-1]
        total = float(null.sum())
        scored = null / total if total else null
        if (scored > 0).all() and float(np.linalg.norm(scored @ scores)) < _AGREES * size:
            left, right = (", ".join(f"{q:.3f}" for q in row) for row in (acted, scored))
            return Scoring(
                "behaviour-not-scored",
                f"in state {int(state)} the program acted by [{left}] and its gradient has the "
                f"scores of [{right}]",
            )
        return None
    return None
