"""From the record of a training run to the report."""

from __future__ import annotations

from dataclasses import replace

from eligibility.audit.faults import FAULTS
from eligibility.audit.language.behaviour import Behaviour
from eligibility.audit.language.facts import Facts, facts_of
from eligibility.audit.language.judgement import judge
from eligibility.audit.reporting.report import AuditReport, Finding
from eligibility.audit.trainers.observed import observed_from
from eligibility.audit.trainers.record import Record
from eligibility.audit.trainers.tiny import GROUP, PROMPTS

_SINGLE = 1e-5  # rewards, a model's norm and rotary angles are in single precision
_DRAWN_AS_SCORED = 1e-5  # of probabilities


def report_of(record: Record, program: str) -> AuditReport:
    """What is said of a program that was run."""
    if record.outcome != "measured":
        return _refusal(record, program)
    facts = _facts(record)
    report = judge(facts, program, (record.file or program, record.line))
    notes = (*_described(record), *report.notes, *record.notes)
    findings = report.findings
    if record.prompt_share > _SINGLE:
        findings = (*findings, _prompt_scored(record, program))
    return replace(
        report,
        findings=findings,
        parameters=record.parameters,
        precision="double precision, but for rewards and norms in single",
        notes=notes,
    )


def _facts(record: Record) -> Facts:
    """The facts of the policy at the configured temperature; or at 1, if only that is scored."""
    facts = _facts_at(record, record.temperature)
    if facts.reading is None and record.temperature != 1.0:
        plain = _facts_at(record, 1.0)
        facts = plain if plain.reading is not None else facts
    return replace(
        facts,
        reference_in_value=bool(record.kl_coefficient and record.policies[0].reference),
        reference_in_gradient=facts.regularised,
    )


def _facts_at(record: Record, temperature: float) -> Facts:
    observed = observed_from(record, temperature)
    worlds = observed.outcomes.worlds
    scored = worlds[0].logits.softmax(-1)[:, : len(observed.language.states)]
    drawn = worlds[0].drawn.exp()[:, : len(observed.language.states)]
    if float((scored - drawn).abs().max()) > _DRAWN_AS_SCORED:
        # what the sampler did to the logits is in the drawn probabilities; here its name is enough
        named = Behaviour(top_p=0.5)
        marked = tuple(replace(world, behaviour=named) for world in worlds)
        observed = replace(observed, outcomes=replace(observed.outcomes, worlds=marked))
    rows = GROUP * len(PROMPTS)
    return facts_of(observed, rows // record.micro_batches if record.micro_batches > 1 else None)


def _described(record: Record) -> tuple[str, ...]:
    steps = (
        "" if record.steps == 1 else f", {record.steps} steps on each (the policy does not move)"
    )
    parts = "" if record.micro_batches == 1 else f", in {record.micro_batches} micro-batches"
    return (
        f"{record.version} {record.trainer}: trained once on every group of answers{steps}{parts}, "
        f"{record.seconds:.0f} s of processor time",
    )


def _prompt_scored(record: Record, program: str) -> Finding:
    fault = FAULTS["prompt-scored"]
    seen = f"up to {record.prompt_share:.1%} of a gradient lies at the logits of a prompt"
    return Finding(fault.id, fault.title, fault.means, seen, program, record.line, fault.fix)


def _refusal(record: Record, program: str) -> AuditReport:
    reason = record.detail
    if record.outcome == "error":
        place = f" at {record.file}:{record.line}" if record.line else ""
        reason = f"the program stopped{place}: {record.detail}"
    return AuditReport(program, "inconclusive", reason, notes=tuple(record.notes))
