"""Programs that add the entropy of some states only, or each state's with a weight of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from eligibility.audit.arrays import Array, Booleans
from eligibility.audit.judgement.audited_program import AuditedProgram
from eligibility.audit.judgement.evidence import Evidence
from eligibility.audit.judgement.explained import Explained, match_of
from eligibility.audit.judgement.timeline import Timeline, timeline


def with_some_entropies(program: AuditedProgram, evidence: Evidence) -> Explained | None:
    """A composition whose credit was measured, next to another entropy than that of all states.

    The entropies do not move with the rewards, so the measured credit has none of them. Nor has it
    a critic's values, which might stand for them: of two actions, an entropy's gradient points as
    the eligibilities do.
    """
    told = program.constants.told
    unknown = program.reading is None or told is None or told.credit is None
    if evidence.long or unknown or program.values != "no":
        return None
    for name in _WEIGHTS:
        other = with_entropies(evidence, name)
        match = match_of(program, other)
        if match is not None and abs(match.entropy) > program.tolerance:
            return Explained(replace(match, note=name, entropies=name), other)
    return None


def with_entropies(evidence: Evidence, name: str) -> Evidence:
    """The paths with the entropies weighted; as they are where ``name`` is of no weights."""
    if name not in _WEIGHTS:
        return evidence
    weights = _WEIGHTS[name](timeline(evidence))
    return replace(evidence, entropy=evidence.entropy * weights[..., None])


# [P, I] how much each state's entropy counts.
_WEIGHTS: dict[str, Callable[[Timeline], Array | Booleans]] = {
    "of the last state": lambda line: line.last_of_batch,
    "averaged over each episode": lambda line: line.present / line.count("episode"),
    "of each episode's last state": lambda line: line.time == line.length - 1,
    "of each episode's first state": lambda line: line.time == 0,
}
