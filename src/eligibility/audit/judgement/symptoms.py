"""What is to be seen without a rule: failures, numbers that are not finite, and graphs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from eligibility.audit.arrays import Booleans
from eligibility.audit.judgement.advantage import Advantage
from eligibility.audit.judgement.audited_program import AuditedProgram
from eligibility.audit.judgement.evidence import Evidence
from eligibility.audit.judgement.location import first_error
from eligibility.audit.judgement.match import Match
from eligibility.audit.judgement.refusal import inconclusive
from eligibility.audit.judgement.scoring import probs_as_logits
from eligibility.audit.judgement.timeline import timeline
from eligibility.audit.reporting.report import AuditReport, Finding
from eligibility.audit.running.survey import RAN
from eligibility.audit.trace import Trace

_EQUAL = 1e-6  # share of its size by which a fitted advantage may miss another


def symptoms(program: AuditedProgram, evidence: Evidence, finite: Booleans) -> list[Finding]:
    """Findings that need no rule: warnings, and faults that stand whatever else is wrong."""
    return [
        *_failures(program),
        *_non_finite(program, evidence, finite),
        *_attainability(program),
        *_attached_advantage(program),
    ]


def mostly_fails(program: AuditedProgram) -> AuditReport | None:
    """The report of a program that stops on most of its paths: of the rest nothing follows."""
    traces = program.survey.traces
    share = _probability(traces, RAN) / max(_probability(traces, ()), 1e-300)
    if share > 0.5 or not program.survey.exhaustive:
        return None
    found = tuple(replace(finding, severity="fault") for finding in _failures(program))
    report = inconclusive(program, f"{found[0].means}: {found[0].evidence}")
    return replace(report, findings=found)


def _probability(traces: Sequence[Trace], outcomes: Sequence[str]) -> float:
    """The probability of the paths with one of the outcomes; of all if there are none."""
    return sum(trace.probability for trace in traces if not outcomes or trace.outcome in outcomes)


def _failures(program: AuditedProgram) -> list[Finding]:
    failed = [trace for trace in program.survey.traces if trace.outcome not in RAN]
    if not failed:
        return []
    file, line = first_error(tuple(failed))
    text = f"{len(failed)} of {len(program.survey.traces)} paths: {failed[0].detail}"
    parts = max((len(step.action) for step in failed[0].steps), default=0)
    if parts > 1 and re.search(rf"size.*\b{parts}\b", failed[0].detail):
        text += (
            f"; the action has {parts} components: are their log-probabilities summed, for "
            "instance with `.sum(-1)`?"
        )
    finding = program.finding("fails-on-some-episodes", text, "warning")
    return [replace(finding, file=file or finding.file, line=line or finding.line)]


def _non_finite(program: AuditedProgram, evidence: Evidence, finite: Booleans) -> list[Finding]:
    if finite.all():
        return []
    steps = evidence.present.sum(axis=1)
    share = f"NaN or infinite on {int((~finite).sum())} of {len(finite)} paths"
    if (steps[~finite] == 1).all():
        return [program.finding("std-of-one-element", f"{share}, all with one step", "warning")]
    first = evidence.restricted(evidence.episode == 0)  # a batch may leave the others to the next
    if any((_has_episode_of_one_step(seen) != finite).all() for seen in (evidence, first)):
        text = f"{share}: those with an episode of one step"
        return [program.finding("std-of-one-element", text, "warning")]
    if program.shortened:  # of a part of one element, say, where the program's has many
        return [
            program.finding(
                "non-finite-gradient", f"{share}, in batches that the audit made short", "warning"
            )
        ]
    return [program.finding("non-finite-gradient", share)]


def without_rare_equals(
    program: AuditedProgram, findings: Sequence[Finding], broken: Evidence, match: Match
) -> list[Finding]:
    """The findings. Numbers that only the probe makes equal are not a fault.

    Where a rule divides by a standard deviation, the gradient is not finite if all numbers are
    equal. A probe of three states makes a critic's advantages so; an environment with more states
    does not.
    """
    if not isinstance(match.form, Advantage) or not broken.paths or not _all_equal(broken, match):
        return list(findings)
    text = (
        "those on which all values that are divided by their standard deviation are equal, as "
        "on the probe"
    )
    return [
        replace(finding, severity="warning", evidence=f"{finding.evidence}: {text}")
        if finding.rule == "non-finite-gradient"
        else finding
        for finding in findings
    ]


def _all_equal(evidence: Evidence, match: Match) -> bool:
    """Whether what the rule divides by its standard deviation is equal, on every path."""
    line, form = timeline(evidence), match.plain
    if isinstance(match.form, Advantage):
        assert match.values is not None
        bare = replace(form, transform="", time_discount=False, norm="")
        credit = replace(match.form, form=bare).weights(evidence, line, match.values)
    else:
        credit = form.credit.of(line, form.discount)
    spread = form.undivided(credit, line)[1]
    size = np.abs(credit[line.present]).max(initial=1e-300)
    return spread is not None and bool((spread[line.present] < _EQUAL * size).all())


def _has_episode_of_one_step(evidence: Evidence) -> Booleans:
    """[P] whether some episode of the path has a single decision."""
    episodes = evidence.environment * (evidence.episode.max(initial=0) + 1) + evidence.episode
    lengths = (
        np.unique(row[present], return_counts=True)[1]
        for row, present in zip(episodes, evidence.present, strict=True)
    )
    return np.array([bool((length == 1).any()) for length in lengths])


def _attainability(program: AuditedProgram) -> list[Finding]:
    reach = probs_as_logits(program.survey)
    if reach is None:
        return []
    text = f"no action can get a probability below {reach[0]:.3f} or above {reach[1]:.3f}"
    return [program.finding("probs-as-logits", text)]


def _attached_advantage(program: AuditedProgram) -> list[Finding]:
    """The critic's gradient moves with every tensor of the policy, also with its last layer."""
    survey = program.survey
    if not survey.shared or survey.shared != survey.acting:
        return []
    text = "the critic's gradient depends on all of the policy's parameters"
    return [program.finding("advantage-not-detached", text)]
