"""What may explain the paths of a program, from what it most likely means to what it least does.

Each explanation is tried only where none before it fits, so that the plainest one counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from eligibility.audit.judgement.audited_program import AuditedProgram
from eligibility.audit.judgement.earlier_returns import with_earlier_returns
from eligibility.audit.judgement.endings import with_blind_ending, with_true_ending
from eligibility.audit.judgement.evidence import Evidence, merged
from eligibility.audit.judgement.explained import Explained, fitted_match_of, match_of
from eligibility.audit.judgement.importance_weights import with_importance_weights
from eligibility.audit.judgement.match import with_offset
from eligibility.audit.judgement.matching import RUNNING
from eligibility.audit.judgement.offset_logarithm import with_offset_logarithm
from eligibility.audit.judgement.other_decisions import (
    in_minibatches,
    with_first_decisions,
    with_ignored_actions,
    with_one_component,
)
from eligibility.audit.judgement.other_objectives import (
    with_changed_rewards,
    with_constant_term,
    with_end_reward,
    with_free_scale,
)
from eligibility.audit.judgement.rewards_of_states import (
    with_added_and_whitened,
    with_added_rewards,
    with_bonuses,
    with_replaced_rewards,
)
from eligibility.audit.judgement.some_entropies import with_some_entropies


def explain(program: AuditedProgram, evidence: Evidence) -> Explained | None:
    """The first explanation that fits every path; None if no rule does."""
    if program.whole_numbers:
        return None
    if program.survey.targets:
        explained = with_importance_weights(_OF_TARGETS, program, evidence)
    else:
        found = (explanation(program, evidence) for explanation in _EXPLANATIONS)
        explained = next((each for each in found if each is not None), None)
    if explained is None:
        return None
    return _with_missing_ends(program, _with_known_ending(program, explained))


def _plain(program: AuditedProgram, evidence: Evidence) -> Explained | None:
    """A composition of the catalogue, with the values of a critic that an optimizer trains."""
    match = match_of(program, evidence)
    return None if match is None else Explained(match, evidence)


def _of_merged_paths(program: AuditedProgram, evidence: Evidence) -> Explained | None:
    """A composition without a fault, of a program that first draws how it will draw its action."""
    as_one = merged(evidence) if program.survey.exhaustive else evidence
    match = match_of(program, as_one) if as_one.paths < evidence.paths else None
    if match is None or not match.faultless:
        return None
    return Explained(replace(match, merged=True), as_one)


def _fitted_critic(program: AuditedProgram, evidence: Evidence) -> Explained | None:
    """A composition with the values of a critic that no optimizer trains."""
    match = fitted_match_of(program, evidence)
    return None if match is None else Explained(match, evidence)


_EXPLANATIONS: tuple[Callable[[AuditedProgram, Evidence], Explained | None], ...] = (
    in_minibatches,
    with_offset_logarithm,
    _plain,
    _of_merged_paths,
    with_some_entropies,
    with_changed_rewards,
    with_constant_term,
    with_earlier_returns,
    with_added_and_whitened,
    _fitted_critic,
    with_ignored_actions,
    with_one_component,
    with_first_decisions,
    with_end_reward,
    with_added_rewards,
    with_bonuses,
    with_replaced_rewards,
    with_free_scale,
)
# Of programs that act by another distribution than the one they learn.
_OF_TARGETS = (_plain, with_earlier_returns, _fitted_critic)


def _with_known_ending(program: AuditedProgram, explained: Explained) -> Explained:
    """The same, with what runs of other observations told of the end of an episode."""
    match = explained.match
    evidence = with_offset(explained.evidence, match.offset)
    if program.survey.beyond:
        match = with_true_ending(evidence, match, program.tolerance)
    if program.survey.blind:
        match = with_blind_ending(evidence, match, program.tolerance)
    return replace(explained, match=match)


def _with_missing_ends(program: AuditedProgram, explained: Explained) -> Explained:
    """The same, with the fault of an update that has nothing of the episodes that ended."""
    if explained.match.use != RUNNING:
        return explained
    text = "of the episodes that ended since the last update nothing is in this one"
    dropped = program.finding("last-step-dropped", text)
    return replace(explained, faults=(*explained.faults, dropped))
