"""Where nothing can be said of a program's gradients: why, and what the audit would need."""

from __future__ import annotations

from dataclasses import replace

from eligibility.audit.choices import BY_ITSELF, MAX_TOKENS
from eligibility.audit.faults import FAULTS
from eligibility.audit.judgement.audited_program import AuditedProgram
from eligibility.audit.judgement.evidence import Evidence, gather
from eligibility.audit.judgement.requirements import what_it_needs
from eligibility.audit.judgement.scoring import compare_scoring
from eligibility.audit.precision import HALF
from eligibility.audit.reporting.report import AuditReport
from eligibility.audit.running.survey import RAN, Survey
from eligibility.audit.trace import BY_HAND, NO_ENVIRONMENT, RATIO, UNREAD, Trace

_NO_UPDATE = (
    "the program made no optimizer step (of torch.optim); does it start training, and is its loop "
    "long enough? A function that is only a loss goes to audit_loss or audit_token_loss, in Python"
)
_NO_ENVIRONMENT = (
    f"the program learns, or draws more than {MAX_TOKENS} times, before it creates an environment: "
    "by gymnasium.make, from gymnasium.Env, or of its own class with reset() and step(action), "
    "which returns (observation, reward, done) or what gymnasium's does; nor does it give a name a "
    "number that moves its gradient as a reward does; give it an environment, or audit its loss: "
    "with audit_loss, or with audit_token_loss if it trains a language model"
)
_SUM_TOLERANCE = 1e-4  # far above rounding, in single precision too


def evidence_or_refusal(program: AuditedProgram) -> Evidence | AuditReport:
    """The evidence; or, where nothing can be said of the gradients, the report that says why."""
    survey = program.survey
    ran = [trace for trace in survey.traces if trace.outcome in RAN]
    if not ran:
        return _did_not_run(program)
    if not any(trace.updates for trace in ran):
        return inconclusive(program, _NO_UPDATE)
    if not any(trace.steps for trace in ran):
        return inconclusive(program, _NO_ENVIRONMENT)
    total = sum(trace.probability for trace in survey.traces)
    if survey.exhaustive and abs(total - 1.0) > _SUM_TOLERANCE:
        return inconclusive(
            program,
            f"the probabilities of all its paths sum to {total:.6g} and not to 1: the same random "
            "choices do not lead to the same run (does it read a clock, or keep files?)",
        )
    evidence = gather(survey)
    if any(HALF in trace.notes for trace in ran):
        return inconclusive(
            program,
            "the gradient is computed in half precision, where rounding hides every rule; run the "
            "program in float32",
        )
    if evidence is None:
        return _without_policy(program)
    if not evidence.scored:
        return inconclusive(program, "some actions come from random numbers the audit cannot read")
    return evidence


def _without_policy(program: AuditedProgram) -> AuditReport:
    """No action depends on the parameters: nothing is drawn, or nothing reaches the policy."""
    drawn = any(step.groups for trace in program.survey.traces for step in trace.steps)
    if not drawn and not _is_chosen(program):
        notes = (note for trace in program.survey.traces for note in trace.notes)
        unread = [note.removeprefix(UNREAD) for note in notes if note.startswith(UNREAD)]
        drawn_from = f" (the program draws from{unread[0]})" if unread else ""
        return inconclusive(
            program,
            f"no action came from a random choice that the audit can read{drawn_from}; it reads "
            "categorical, Bernoulli, multinomial, normal and beta distributions of torch, "
            "torch.multinomial, torch.bernoulli, numpy's choice, multinomial and binomial, and "
            "comparisons and argmax of uniform and normal numbers from torch, numpy and random; "
            "audit its loss with audit_loss",
        )
    if not drawn:
        finding = program.finding("argmax-action", "no path has a randomly drawn action")
        return replace(inconclusive(program, finding.means), verdict="biased", findings=(finding,))
    moved = moved_by_hand(program.survey)
    if moved is not None:
        return inconclusive(program, what_it_needs(Trace("error", BY_ITSELF, *moved), program.name))
    scoring = compare_scoring(program.survey)
    corrected = any(RATIO in trace.notes for trace in program.survey.traces)
    if scoring is not None and scoring.rule == "behaviour-not-scored" and not corrected:
        # who explores at random may learn by a rule that is for any behaviour
        meant = any(
            draw.source == "other" for trace in program.survey.traces for draw in trace.draws
        )
        finding = program.finding(scoring.rule, scoring.evidence, "warning" if meant else "")
        verdict = "unexplained" if meant else "biased"
        return replace(inconclusive(program, finding.means), verdict=verdict, findings=(finding,))
    return inconclusive(
        program,
        "no action's probability depends on the parameters that the optimizer trains; "
        "are they replaced after the optimizer was created?",
    )


def moved_by_hand(survey: Survey) -> tuple[str, int] | None:
    """File and line of a loss whose parameters the program moves itself; None if there is none."""
    for note in (note for trace in survey.traces for note in trace.notes):
        if note.startswith(BY_HAND):
            file, _, line = note.removeprefix(BY_HAND).strip().rpartition(":")
            return file, int(line)
    return None


def _is_chosen(program: AuditedProgram) -> bool:
    """Whether the actions are a choice of the policy, without any random number.

    The same state was always answered by the same action, nothing in the process was drawn, and the
    text says so, or the program scores the actions by a log-probability with a gradient.
    """
    traces = program.survey.traces
    told = program.source is not None and program.source.mentions(FAULTS["argmax-action"].look)
    scored = any(score.differentiable for trace in traces for score in trace.scores)
    unread = any(note.startswith(UNREAD) for trace in traces for note in trace.notes)
    answers: dict[tuple[int, int], set[tuple[float, ...]]] = {}
    for step in (step for trace in traces for step in trace.steps):
        answers.setdefault((step.state, step.time), set()).add(step.action)
    return (
        (told or scored) and not unread and all(len(actions) == 1 for actions in answers.values())
    )


def _did_not_run(program: AuditedProgram) -> AuditReport:
    trace = program.survey.traces[0]
    if trace.outcome == NO_ENVIRONMENT:
        return inconclusive(program, _NO_ENVIRONMENT)
    if "does not require grad" in trace.detail:
        finding = program.finding("no-gradient", f"`backward` failed: {trace.detail}")
        report = inconclusive(program, finding.means)
        return replace(report, verdict="no-gradient", findings=(finding,))
    return inconclusive(program, what_it_needs(trace, program.name))


def inconclusive(program: AuditedProgram, reason: str) -> AuditReport:
    """The report of a program of which nothing is known, for this reason."""
    return AuditReport(
        program.name,
        "inconclusive",
        reason,
        paths=sum(trace.outcome in RAN for trace in program.survey.traces),
        predicted_paths=program.survey.predicted,
        exhaustive=program.survey.exhaustive,
        precision=precision_of(program.survey),
        tolerance=program.tolerance,
    )


def precision_of(survey: Survey) -> str:
    """In which precision the program ran, for its report."""
    if survey.single:
        return "run in single precision, because the program requires it"
    return "run in double precision"
