"""Rules for other decisions than those of each whole batch: of its parts, or ignored ones too."""

from __future__ import annotations

from dataclasses import replace

from eligibility.audit.arrays import Booleans
from eligibility.audit.judgement.audited_program import AuditedProgram
from eligibility.audit.judgement.evidence import Evidence, gather
from eligibility.audit.judgement.match import Match
from eligibility.audit.judgement.matching import find_match
from eligibility.audit.judgement.minibatches import minibatches
from eligibility.audit.running.sampling_calls import executed_draws, executing_call
from eligibility.audit.running.survey import has_critic


def trained(program: AuditedProgram) -> str:
    """Which critic's values may enter the advantages, of those that optimizers train."""
    return "trained" if program.critic and has_critic(program.survey) else "no"


def in_minibatches(program: AuditedProgram, evidence: Evidence) -> tuple[Match, Evidence] | None:
    """The rule that explains every part of a batch that has its own optimizer step.

    None where nothing is done to a part as a whole: then the sum of the steps tells as much.
    """
    parts = minibatches(program.survey, evidence)
    if parts is None:
        return None
    constants = replace(program.constants, told=None)  # it was measured with all of them together
    match = find_match(parts, constants, program.tolerance, trained(program))
    if match is None or not match.plain.crosses_episodes:
        return None
    return replace(match, note="in each minibatch"), parts


def with_ignored_actions(program: AuditedProgram, finite: Booleans) -> Match | None:
    """The rule that explains every path if the autoreset steps are decisions like the others."""
    steps = (step for trace in program.survey.traces for step in trace.steps)
    if all(step.executed for step in steps):
        return None
    evidence = gather(program.survey, ignored=True)
    if evidence is None or not evidence.scored:
        return None
    constants = replace(program.constants, told=None)  # it was measured without them
    return find_match(evidence.where(finite), constants, program.tolerance, trained(program))


def with_one_component(program: AuditedProgram, finite: Booleans) -> tuple[Match | None, int, int]:
    """The rule that explains every path if one component of each action is all of it."""
    call = executing_call(program.survey.traces)
    steps = (step for trace in program.survey.traces for step in trace.steps)
    components = max((len(executed_draws(step, call)) for step in steps), default=0)
    constants = replace(program.constants, told=None)  # it was measured with all of them
    for number in range(components if components > 1 else 0):
        evidence = gather(program.survey, component=number)
        if evidence is not None and evidence.scored:
            kept = evidence.where(finite)
            match = find_match(kept, constants, program.tolerance, trained(program))
            if match is not None:
                return match, number + 1, components
    return None, 0, components
