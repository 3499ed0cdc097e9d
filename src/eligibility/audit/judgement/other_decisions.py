"""Rules for other decisions than those of each whole batch: of its parts, or ignored ones too.

What is done to a whole part, such as whitening, shows in the gradient of its own optimizer step. So
each step of the first pass over the batch becomes a row of the evidence: all rewards, and the
decisions that this step uses. Which they are is read from the gradients; the generator that cuts is
the same in every run.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from eligibility.audit.arrays import Array, Booleans
from eligibility.audit.judgement.audited_program import AuditedProgram
from eligibility.audit.judgement.evidence import Evidence, ascents, gather, own_columns
from eligibility.audit.judgement.explained import Explained, match_of
from eligibility.audit.judgement.reading import used_decisions
from eligibility.audit.running.sampling_calls import executed_draws, executing_call
from eligibility.audit.running.survey import RAN, Survey

_RANK = 1e-6  # relative size below which gradients count as dependent
_LEFT = 1e-6  # share of the gradients beyond which a decision counts as missing


def in_minibatches(program: AuditedProgram, evidence: Evidence) -> Explained | None:
    """Parts of a batch, each of which has its own optimizer step.

    None where nothing is done to a part as a whole: then the sum of the steps tells as much.
    """
    parts = minibatches(program.survey, evidence)
    if parts is None:
        return None
    match = match_of(program.untold, parts)
    if match is None or not match.plain.crosses_episodes:
        return None
    return Explained(replace(match, note="in each minibatch"), parts)


def with_ignored_actions(program: AuditedProgram, evidence: Evidence) -> Explained | None:
    """Autoreset steps as decisions like the others."""
    steps = (step for trace in program.survey.traces for step in trace.steps)
    if all(step.executed for step in steps):
        return None
    everything = gather(program.survey, ignored=True)
    if everything is None or not everything.scored:
        return None
    match = match_of(program.untold, everything.finite)
    if match is None:
        return None
    text = "the actions that the environments ignored explain every path"
    return Explained(match, evidence, (program.finding("autoreset-step-trained-on", text),))


def with_one_component(program: AuditedProgram, evidence: Evidence) -> Explained | None:
    """One component of each action as all of it."""
    call = executing_call(program.survey.traces)
    steps = (step for trace in program.survey.traces for step in trace.steps)
    components = max((len(executed_draws(step, call)) for step in steps), default=0)
    for number in range(components if components > 1 else 0):
        part = gather(program.survey, component=number)
        match = match_of(program.untold, part.finite) if part and part.scored else None
        if match is not None:
            text = f"component {number + 1} of {components} alone explains every path"
            return Explained(match, evidence, (program.finding("component-not-scored", text),))
    return None


def with_first_decisions(program: AuditedProgram, evidence: Evidence) -> Explained | None:
    """A batch that leaves its last decisions to the next update."""
    for used in used_decisions(program.measured, evidence):
        some = evidence.first(used)
        match = match_of(program, some)
        if match is not None:
            return Explained(replace(match, use=f"first-{used}-decisions"), some)
    return None


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
    joined: dict[str, Any] = {
        name: np.concatenate([getattr(row, name) for row in rows])
        for name, value in vars(evidence).items()
        if isinstance(value, np.ndarray)
    }
    return replace(evidence, **joined)


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

    def explains(chosen: Booleans) -> bool:
        parts = (evidence.eligibility[:, chosen], evidence.entropy[:, chosen])
        basis = np.concatenate(parts, axis=1).transpose(0, 2, 1)  # [P, D, 2 I]
        basis = basis / np.maximum(np.linalg.norm(basis, axis=1, keepdims=True), 1e-300)
        solved = np.linalg.pinv(basis, rcond=_RANK) @ ascent[..., None]
        left = np.linalg.norm(ascent - (basis @ solved)[..., 0])
        return bool(left <= _LEFT * np.linalg.norm(ascent))

    def drop(first: int, last: int) -> None:
        """Of some decisions in their order, leave out each that the others can replace."""
        without = used.copy()
        without[first:last] = False
        if explains(without):
            used[first:last] = False
        elif last - first > 1:
            middle = (first + last) // 2
            drop(first, middle)
            drop(middle, last)

    drop(0, len(used))
    return used
