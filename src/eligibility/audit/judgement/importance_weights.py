"""Programs that act by another distribution than the one they learn, and weigh what they did.

Σ over what acts, b, of p_b(path) · Π π/b · f(path) is the sum over what is learned, π, of
p_π(path) · f(path). So the gradients are judged with the eligibilities of π, times the ratios of
their episode; or with rewards times the ratios so far, as nothing later moves a reward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from eligibility.audit.arrays import Array
from eligibility.audit.job import Job
from eligibility.audit.judgement.audited_program import AuditedProgram
from eligibility.audit.judgement.evidence import Evidence, merged
from eligibility.audit.judgement.explained import Explained, match_of
from eligibility.audit.judgement.scoring import Pair, compare_scoring, scored_choices
from eligibility.audit.judgement.timeline import timeline
from eligibility.audit.precision import step_length
from eligibility.audit.running.runner import Runner, run_all
from eligibility.audit.running.sampling_calls import executing_call
from eligibility.audit.running.slopes import (
    Key,
    Target,
    action_keys,
    covering_paths,
    key_of,
    slope_of,
)
from eligibility.audit.running.survey import RAN, Survey
from eligibility.audit.trace import Draw, Trace

_EPISODE, _SO_FAR = "importance-weights", "per-decision-importance-weights"
STEP = "step-ratio"
Explanation = Callable[[AuditedProgram, Evidence], Explained | None]
_WEIGHTS = {
    _EPISODE: "times the ratio of the probabilities of its episode",
    _SO_FAR: "of rewards times the ratio of the probabilities so far",
    STEP: "times the ratio of its own probabilities",
}


def with_targets(survey: Survey, runner: Runner) -> Survey | None:
    """The survey with what is learned in the place of what acts; None if those are the same.

    The slopes are differences of what is scored on a few paths, with the parameters moved.
    """
    seen = compare_scoring(survey)
    if seen is None or seen.rule != "behaviour-not-scored" or not survey.directions:
        return None
    call = executing_call(survey.traces)
    ran = [trace for trace in survey.traces if trace.outcome in RAN]
    targets: dict[Key, Target] = {}
    for trace, _ in covering_paths(ran, call, {}):
        for key, target in _targets(trace, call, survey, runner):
            if not targets.setdefault(key, target).is_close(target):
                return None  # the rows that are scored are in another order
    told = replace(survey, targets=targets)
    return told if targets and told.policy else None


def _targets(
    trace: Trace, call: int, survey: Survey, runner: Runner
) -> Iterator[tuple[Key, Target]]:
    """What one path scores for each of its choices; none if that cannot be told."""
    own, keys = _scored(trace, call), [key for key, _ in action_keys(trace, call)]
    if not own or len(own) != len(keys):
        return
    distance = step_length(survey.unit)
    job = Job(trace.picked, survey.size, survey.directions_each, raised=survey.raised)
    jobs = (
        replace(job, tensor=tensor, direction=direction, distance=sign * distance)
        for tensor, direction in survey.directions
        for sign in (1.0, -1.0)
    )
    moved = [_scored(run, call) for run in run_all(runner, jobs)]
    if any(len(each) != len(own) for each in moved):
        return
    for number, (key, draw) in enumerate(zip(keys, own, strict=True)):
        pairs = [
            (on[number], back[number]) for on, back in zip(moved[::2], moved[1::2], strict=True)
        ]
        learned = key_of(draw, key[0], key[1])
        slope = slope_of(learned, pairs, distance)
        yield key, Target(draw.probs, draw.loc, draw.scale, slope)


def _scored(trace: Trace, call: int) -> list[Draw]:
    """The choices as if they had been made by the distributions that are scored."""
    passes = scored_choices(trace, call)
    return [_as_scored(pair) for pair in passes[0]] if passes else []


def _as_scored(pair: Pair) -> Draw:
    _, draw, row = pair
    if row.gaussian:
        return replace(draw, loc=row.numbers[0], scale=row.numbers[1])
    return replace(draw, probs=row.numbers)


def with_importance_weights(
    explanations: Sequence[Explanation], program: AuditedProgram, evidence: Evidence
) -> Explained | None:
    """An explanation of what is learned, with one of the ratios that make up for what acts."""
    if match_of(program.untold, evidence) is not None:
        return None  # it has no ratio
    everything = [evidence]
    if program.survey.exhaustive and (as_one := merged(evidence)).paths < evidence.paths:
        everything.append(as_one)
    for paths, name in product(everything, _WEIGHTS):
        seen, truth = weighted(paths, name), weighted(paths, _EPISODE)
        for explanation in explanations:
            found = explanation(program.untold, seen)
            if found is not None:
                words = filter(None, (_WEIGHTS[name], found.match.note))
                kept = replace(found.match, note=", ".join(words), weights=name)
                kept = replace(kept, merged=paths is not evidence)
                return replace(found, match=kept, truth=truth)
    return None


def weighted(evidence: Evidence, name: str) -> Evidence:
    """The paths with one of the ratios; as they are where ``name`` is none of them."""
    if name not in _WEIGHTS:
        return evidence
    ratios = replace(evidence, reward=evidence.log_ratio * evidence.present)
    line = timeline(ratios)
    if name == _SO_FAR:
        return replace(evidence, reward=evidence.reward * np.exp(line.so_far(1.0)))
    log = line.total(ratios.reward, "episode") if name == _EPISODE else ratios.reward
    factor: Array = np.exp(log)
    return replace(evidence, eligibility=evidence.eligibility * factor[..., None])
