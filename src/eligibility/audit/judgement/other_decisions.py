"""Rules for other decisions than those of each whole batch: of its parts, or ignored ones too.

What is done to a whole part, such as whitening, shows in the gradient of its own optimizer step. So
each step of the first pass over the batch becomes a row of the evidence: all rewards, and the
decisions that this step uses. Which they are is read from the gradients; the generator that cuts is
the same in every run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from eligibility.audit.arrays import Array, Booleans, Integers
from eligibility.audit.judgement.audited_program import AuditedProgram
from eligibility.audit.judgement.evidence import Evidence, ascents, gather, own_columns
from eligibility.audit.judgement.explained import Explained, match_of
from eligibility.audit.judgement.reading import used_decisions
from eligibility.audit.running.sampling_calls import executed_draws, executing_call
from eligibility.audit.running.survey import RAN, Survey
from eligibility.audit.trace import SHUFFLED

_RANK = 1e-6  # relative size below which gradients count as dependent
_PAIR = 2  # numbers that over their deviation are 1 and -1, whatever they are
_LEFT = 1e-6  # share of the gradients beyond which a decision counts as missing


def in_minibatches(program: AuditedProgram, evidence: Evidence) -> Explained | None:
    """Parts of a batch, each of which has its own optimizer step.

    None where nothing is done to a part as a whole: then the sum of the steps tells as much.
    """
    for parts in minibatches(program.survey, evidence):
        match = match_of(program.untold, parts)
        sizes = parts.used.sum(axis=1)
        if match is None or (match.plain.divides and sizes.max() <= _PAIR):
            continue
        if match.plain.crosses_episodes or (match.plain.norm and np.ptp(sizes) > 0):
            return Explained(replace(match, note="in each minibatch"), parts)
    return None


def with_ignored_actions(program: AuditedProgram, evidence: Evidence) -> Explained | None:
    """Autoreset steps as decisions like the others."""
    steps = (step for trace in program.survey.traces for step in trace.steps)
    if all(step.executed for step in steps):
        return None
    everything = gather(program.survey, ignored=True)
    if everything is None or not everything.scored:
        return None
    found = in_minibatches(program, everything.finite)
    match = found.match if found is not None else match_of(program.untold, everything.finite)
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


def minibatches(survey: Survey, evidence: Evidence) -> Iterator[Evidence]:
    """A row for each path and each part of its batch, in every way in which it may be cut.

    Args:
        survey: All paths.
        evidence: The same, gathered.
    """
    traces = [trace for trace in survey.traces if trace.outcome in RAN and trace.steps]
    columns = own_columns(survey)
    steps = [ascents(trace, survey)[:, columns] for trace in traces]
    if len(traces) != evidence.paths or not all(np.isfinite(each).all() for each in steps):
        return
    if any(SHUFFLED in trace.notes for trace in traces):
        for pieces in _pieces(np.array([len(each) for each in steps]), evidence):
            parts = _of_parts(pieces, steps, evidence)
            if _can_be_of(parts.ascent, parts.eligibility, parts.entropy):
                yield parts
    if evidence.present.all() and len({len(each) for each in steps}) == 1:
        of_steps = np.array(steps)  # [P, U, D]
        of_steps = of_steps[:, of_steps.any(axis=(0, 2))]  # without a critic's
        found = _first_pass(of_steps, evidence) if of_steps.shape[1] > 1 else None
        if found is not None:
            yield _of_parts(found, list(of_steps), evidence)


def _of_parts(parts: list[Booleans], steps: list[Array], evidence: Evidence) -> Evidence:
    """The rows of each part [I], with the gradients of its step of every path [U, D]."""
    rows = []
    for number, part in enumerate(parts):
        here: Booleans = np.asarray((evidence.present & part).any(axis=1))
        cut = evidence.where(here)
        used = cut.present & part
        taken = [each[number] for each, has in zip(steps, here, strict=True) if has]
        row = replace(
            cut,
            ascent=np.array(taken),
            used=used,
            eligibility=cut.eligibility * used[..., None],
            entropy=cut.entropy * used[..., None],
        )
        rows.append(row)
    joined: dict[str, Any] = {
        name: np.concatenate([getattr(row, name) for row in rows])
        for name, value in vars(evidence).items()
        if isinstance(value, np.ndarray)
    }
    return replace(evidence, **joined)


def _pieces(counts: Integers, evidence: Evidence) -> Iterator[list[Booleans]]:
    """The parts of batches of several lengths: all have the same length but the last.

    Shuffled rows keep their order in the audit, so that each part is a piece of the batch. Its
    length follows from the number of steps: every pass over a batch has one for each piece.

    Args:
        counts: [P] optimizer steps of each path.
        evidence: The same paths.
    """
    lengths, rows = evidence.present.sum(axis=1), np.arange(evidence.present.shape[1])
    for size in range(1, len(rows)):
        passes = counts / -(-lengths // size)
        if np.ptp(passes) == 0.0 and float(passes[0]).is_integer():
            yield [np.asarray(rows // size == n) for n in range(rows[-1] // size + 1)]


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
        return _can_be_of(ascent, evidence.eligibility[:, chosen], evidence.entropy[:, chosen])

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


def _can_be_of(ascent: Array, eligibility: Array, entropy: Array) -> bool:
    """Whether gradients [P, D] are sums of what decisions [P, I, D] have, with any weights."""
    basis = np.concatenate((eligibility, entropy), axis=1).transpose(0, 2, 1)  # [P, D, 2 I]
    basis = basis / np.maximum(np.linalg.norm(basis, axis=1, keepdims=True), 1e-300)
    solved = np.linalg.pinv(basis, rcond=_RANK) @ ascent[..., None]
    left = np.linalg.norm(ascent - (basis @ solved)[..., 0])
    return bool(left <= _LEFT * np.linalg.norm(ascent))
