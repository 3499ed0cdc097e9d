"""From the record of a training run to the report."""

from __future__ import annotations

import ast
import itertools
from dataclasses import replace
from pathlib import Path

import torch

from eligibility.audit.faults import CHOICES, FAULTS
from eligibility.audit.faults.language import INSTEAD
from eligibility.audit.language.behaviour import Behaviour
from eligibility.audit.language.judgement import judge
from eligibility.audit.language.measured import Measured, measured_of
from eligibility.audit.language.measurement import Observed
from eligibility.audit.language.places import place_of
from eligibility.audit.language.recording import Operation, Place
from eligibility.audit.reporting.report import AuditReport, Convention, Finding, if_a_reward
from eligibility.audit.trainers.answers import outcomes
from eligibility.audit.trainers.cut_tokens import with_scored_cuts
from eligibility.audit.trainers.draw_options import CUTS_OFF, line_of_option
from eligibility.audit.trainers.observed import observed_from
from eligibility.audit.trainers.operations import operations_of
from eligibility.audit.trainers.record import Policies, Record

_LOSS_ALONE = "audit its loss with audit_token_loss"
_SINGLE = 1e-5  # rewards, a model's norm and rotary angles are in single precision
_DRAWN_AS_SCORED = 1e-5  # of probabilities
_DRAWN = "behaviour-not-scored"
_SAME_TEXT = "score the tokens that were drawn, after the tokens that they were drawn after"
_OVERWRITTEN = "keep the tokens that `generate` returns; mask what follows the first end alone"


def report_of(record: Record, program: str) -> AuditReport:
    """What is said of a program that was run."""
    if record.outcome != "measured":
        return _refusal(record, program)
    record = with_scored_cuts(record)
    measured, temperature = _measured(record)
    if measured.reading is None and len({*record.made} - {0}) > 1:
        whole = replace(record, all_steps=True)
        of_all_steps = _measured(whole)
        if of_all_steps[0].reading is not None:
            record, (measured, temperature) = whole, of_all_steps
    place = (record.file or program, record.line)
    report = judge(measured, program, place)
    if record.drift and len(record.gradients_again) == len(record.gradients):
        again = judge(_facts_again(record, temperature), program, place)
        report = _with_second(report, again, _distance(record))
    if record.mixed_elsewhere:
        report = _with_groups_mixed(report, measured.operations)
    notes = (*_described(record), *report.notes, *record.notes)
    if record.prompt_share > _SINGLE:
        times = record.prompt_share
        part = f"{times:.1%} of" if times < 1.0 else f"{times:.2g} times"
        seen = f"the gradient at the logits of a prompt is up to {part} that at an answer's"
        report = _with_fault(report, "prompt-scored", seen, measured.operations, place)
    if max((each["attached"] for each in record.operations), default=0.0) > _SINGLE:
        seen = "the gradient at the logits is multiplied by something else that carries a gradient"
        report = _with_fault(report, "advantage-not-detached", seen, measured.operations, place)
    along_rows = next((found["along_rows"] for found in record.operations), None)
    if along_rows and measured.reading is None:
        seen = "log-probabilities are normalised over positions, not over tokens"
        report = _with_fault(report, "softmax-over-steps", seen, (), tuple(along_rows))
    if record.kept:
        seen = "what the step has used is still there when the next gradient is added to it"
        report = _with_fault(report, "gradients-not-zeroed", seen, (), tuple(record.kept))
    if record.all_steps:  # the expectation of what is left is not that of the program's steps
        conventions = tuple(replace(each, bias=None) for each in report.conventions)
        report = replace(report, components={}, wanted={}, conventions=conventions)
    if record.overwritten:
        report = _with_an_end_scored(report, tuple(record.overwritten))
    if record.drawn_at and (record.temperature != 1.0 or not record.scored_otherwise):
        report = _at_the_draw(report, record)
    if record.unseen and all(finding.rule != _DRAWN for finding in report.findings):
        seen, fix = record.unseen
        file, line = record.drawn_at or place
        at = file, line_of_option(Path(file), line, CUTS_OFF)
        report = _with_fault(report, _DRAWN, seen, (), at, fix)
    if record.supposed:
        report = if_a_reward(report, record.supposed)
    return replace(
        report,
        parameters=record.parameters,
        precision="double precision, except rewards and norms in single precision",
        notes=notes,
    )


def _with_second(first: AuditReport, again: AuditReport, distance: float) -> AuditReport:
    """The report of both updates: of the first, and what only the second one shows."""
    passed = first.verdict in ("unbiased", "convention")
    known = {finding.rule for finding in first.findings}
    known |= set() if passed else {"unexplained"}
    faults = tuple(
        replace(finding, evidence=f"in the second update: {finding.evidence}")
        for finding in again.findings
        if finding.rule not in known
    )
    worse = any(finding.severity == "fault" for finding in faults)
    named = {convention.name for convention in first.conventions}
    others = tuple(c for c in again.conventions if c.name not in named)
    verdict = "convention" if first.verdict == "unbiased" and any(c.bias for c in others) else ""
    if passed and again.verdict == "unexplained":
        verdict = "unexplained"
    read = again.rule or "a weight that no composition of known rules gives"
    note = (
        f"second update, by a policy whose log π(token) differs by up to {distance:.2g} (at a "
        f"larger distance, ratios have more bias and more of them are clipped): {read}"
    )
    base = again if worse else first
    return replace(
        first,
        verdict=again.verdict if worse else verdict or first.verdict,
        summary=f"in the second update, {again.summary}" if worse or verdict else base.summary,
        findings=(*first.findings, *faults),
        conventions=(*first.conventions, *others),
        paths=first.paths + again.paths,
        predicted_paths=first.predicted_paths + again.predicted_paths,
        updates=2,
        notes=(note, *first.notes),
    )


def _with_fault(
    report: AuditReport,
    rule: str,
    seen: str,
    done: tuple[Operation, ...],
    place: Place,
    fix: str = "",
) -> AuditReport:
    """The report with a fault that the gradients at the answers' logits do not show."""
    file, line = place_of(rule, done) if done else place
    finding = Finding.of(FAULTS[rule], seen, file, line)
    finding = replace(finding, fix=fix or finding.fix)
    faults = [each for each in report.findings if each.severity == "fault"]
    findings = (*(each for each in report.findings if each.rule != "unexplained"), finding)
    if faults:
        return replace(report, findings=findings)
    return replace(report, verdict="biased", summary=finding.means, findings=findings)


def _with_an_end_scored(report: AuditReport, place: Place) -> AuditReport:
    """The report where an end that was not drawn is scored.

    The weight of that token is another one's, so what was read of the weights is left out.
    """
    seen = (
        "where an answer is cut at the greatest length, the end token takes the place of the last "
        "token that was drawn, and the end is scored; no other convention or fault of the loss is "
        "looked for"
    )
    bare = replace(
        report, rule="", findings=(), conventions=(), weights=(), credit=None, components={},
        wanted={}, invariances={},
    )  # fmt: skip
    return _with_fault(bare, "scored-other-action", seen, (), place, _OVERWRITTEN)


def _at_the_draw(report: AuditReport, record: Record) -> AuditReport:
    """The report with the place of the draw where the draw is what is not scored."""
    file, line = record.drawn_at
    line = line_of_option(Path(file), line)
    findings = (
        replace(each, file=file, line=line) if each.rule == _DRAWN else each
        for each in report.findings
    )
    return replace(report, findings=tuple(findings))


def _distance(record: Record) -> float:
    """By how much log π(token) of a later policy differs at most."""
    pairs = [
        torch.tensor([now.logits, later.logits], dtype=torch.float64) / record.temperature
        for now, later in zip(record.policies, record.later, strict=True)
    ]
    return max(float(pair.log_softmax(-1).diff(dim=0).abs().max()) for pair in pairs)


def _measured(record: Record) -> tuple[Measured, float]:
    """The measured of the policy at the temperature of the draw; or at the one that is scored."""
    measured, temperature = _measured_at(record, record.temperature), record.temperature
    scored = [recorded["temperature"] for recorded in record.operations[:1]]
    for other in sorted({1.0, *scored} - {temperature}):
        if measured.reading is None:
            elsewhere = _measured_at(record, other)
            if elsewhere.reading is not None:
                measured, temperature = elsewhere, other
    if measured.reading is None and record.ordered:
        sizes = [parts for parts in range(2, record.group) if record.group % parts == 0]
        for parts, same in itertools.product(sizes, (record, _with_twins_turned(record))):
            split = _measured_at(_split(same, parts), temperature)
            measured = measured if split.reading is None else split
    return measured, temperature


def _with_twins_turned(record: Record) -> Record:
    """The record with the gradients of equal answers to a prompt in the opposite order.

    Which of them is which cannot be seen where a program scores one answer at a time.
    """
    every = outcomes(record.ordered, record.prompts, record.group, record.length)
    turned = []
    for number, table in enumerate(record.gradients):
        rows = list(enumerate(every[number % len(every)][0]))
        twins = [[i for i, a in rows if (i // record.group, a) == (row // record.group, answer)]
                 for row, answer in rows]  # fmt: skip
        turned.append([table[same[-1 - same.index(row)]] for row, same in enumerate(twins)])
    return replace(record, gradients=turned)


def _facts_again(record: Record, temperature: float) -> Measured:
    """The measured of the second update; ratios may be to the old policy as it is scored.

    That tokens were drawn from another one is the first update's fault.
    """
    measured = _measured_at(record, temperature, again=True)
    if measured.reading is None:
        scored = _measured_at(_drawn_as_scored(record, temperature), temperature, again=True)
        measured = measured if scored.reading is None else scored
    return measured


def _drawn_as_scored(record: Record, temperature: float) -> Record:
    def scored(policy: Policies) -> Policies:
        logits = torch.tensor(policy.logits, dtype=torch.float64) / temperature
        return replace(policy, drawn=logits.softmax(-1).tolist())

    policies = [scored(policy) for policy in record.policies]
    later = [replace(now, drawn=old.drawn) for now, old in zip(record.later, policies, strict=True)]
    return replace(record, policies=policies, later=later)


def _split(record: Record, parts: int) -> Record:
    """The record with each prompt's answers split into `parts` groups, each its own prompt.

    Where groups were run in every order of their answers, the outcomes are the same ones.
    """

    def repeated(policy: Policies) -> Policies:
        tables = vars(policy).items()
        return Policies(**{name: [r for r in rows for _ in range(parts)] for name, rows in tables})

    return replace(
        record,
        prompts=record.prompts * parts,
        group=record.group // parts,
        policies=[repeated(policy) for policy in record.policies],
        later=[repeated(policy) for policy in record.later],
    )


def _measured_at(record: Record, temperature: float, again: bool = False) -> Measured:
    observed = _observed(record, temperature, again)
    before = _observed(record, temperature) if again else None  # the same answers, at ratios of 1
    rows = record.group * record.prompts
    slices = rows // record.micro_batches if record.micro_batches > 1 else None
    measured = measured_of(observed, slices, before)
    return replace(
        measured,
        reference_in_value=bool(record.kl_coefficient and record.policies[0].reference),
        reference_in_gradient=bool(record.reference_moves) or _has_the_reference(measured),
        operations=operations_of(*record.operations) if record.operations else (),
    )


def _has_the_reference(measured: Measured) -> bool:
    """Whether what no reward has a part in depends on the reference: log π − log ref does not."""
    if measured.regularisers is None:
        return measured.regularised
    return bool(set(measured.regularisers.coefficients) - {"k1"})


def _observed(record: Record, temperature: float, again: bool = False) -> Observed:
    observed = observed_from(record, temperature, again)
    worlds = observed.outcomes.worlds
    known = len(observed.language.states)
    scored = [(w.old_logits if again else w.logits).softmax(-1)[:, :known] for w in worlds]
    drawn = [world.drawn.exp()[:, :known] for world in worlds]
    if float((torch.stack(scored) - torch.stack(drawn)).abs().max()) > _DRAWN_AS_SCORED:
        # what the sampler did to the logits is in the drawn probabilities; here its name is enough
        named = Behaviour(worlds[0].behaviour.source, top_p=0.5)
        marked = tuple(replace(world, behaviour=named) for world in worlds)
        observed = replace(observed, outcomes=replace(observed.outcomes, worlds=marked))
    return observed


def _described(record: Record) -> tuple[str, ...]:
    times = ", each twice" if record.drift else ""
    steps = times if record.steps == 1 else f"{times}, {record.steps} steps on each"
    count, stopped, dropped = len(record.made), len(record.stopped), []
    idle = record.made.count(0) - stopped
    skipping = sum(record.left_out) - record.made.count(0)
    if idle:
        dropped.append(
            f"after {idle} of {count} groups of answers the program samples again without a step; "
            "these groups are excluded"
        )
    if skipping:
        dropped.append(
            f"on {skipping} of {count} groups of answers the program leaves out some of its steps; "
            "these groups are excluded"
        )
    if stopped:
        dropped.append(
            f"on {stopped} of {count} groups of answers the program stops at {record.stopped[0]}; "
            "these groups are excluded"
        )
    parts = "" if record.micro_batches == 1 else f", in {record.micro_batches} micro-batches"
    return (
        f"{record.version}, {record.trainer}: trained once on every group of answers"
        f"{steps}{parts}, {record.seconds:.0f} s of processor time",
        *dropped,
    )


def _with_groups_mixed(report: AuditReport, done: tuple[Operation, ...]) -> AuditReport:
    """The report where groups are those of the prompts only if both have the same size."""
    name = "groups-mixed"
    where = place_of(name, done)
    mixed = Convention(name, CHOICES[name], None, 0.0, *where, instead=INSTEAD[name])
    note = (
        "where a prompt has another number of answers than there are prompts, the rewards of one "
        "prompt's answers change the weights of another's"
    )
    others = tuple(each for each in report.conventions if each.name != name)
    report = replace(report, conventions=(*others, mixed), notes=(note, *report.notes))
    if report.verdict != "unbiased":
        return report
    summary = f"the gradient of a loss with known conventions: {name}"
    return replace(report, verdict="convention", summary=summary)


def _refusal(record: Record, program: str) -> AuditReport:
    reason = record.detail
    if record.other_text:
        bare = AuditReport(program, "inconclusive", reason, notes=tuple(record.notes))
        where = record.file or program, record.line
        return _with_fault(bare, _DRAWN, record.other_text, (), where, _SAME_TEXT)
    if record.outcome == "error":
        place = f" at {record.file}:{record.line}" if record.line else ""
        reason = f"the program stopped{place}: {record.detail}"
    elif reason.endswith(_LOSS_ALONE):
        reason = f"{reason}: {_command(Path(program))}"
    return AuditReport(program, "inconclusive", reason, notes=tuple(record.notes))


def _command(script: Path) -> str:
    """A line for the shell that audits the script's loss function; or one that shows how."""
    name = _loss_function(script)
    if not name:
        given = "lambda log_probs, rewards, mask: -(log_probs * rewards[:, None] * mask).sum()"
        return f'python -c "import eligibility as el; print(el.audit_token_loss({given}))"'
    return (
        f'python -c "import eligibility as el; from {script.stem} import {name}; '
        f'print(el.audit_token_loss({name}))"'
    )


def _loss_function(script: Path) -> str:
    """The first function with a loss in its name, of a script that can be imported."""
    try:
        tree = ast.parse(script.read_bytes())
    except (OSError, SyntaxError):  # it is gone, or is not Python
        return ""
    guarded = any(
        isinstance(node, ast.If) and "__name__" in ast.unparse(node.test) for node in tree.body
    )
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    losses = [name for name in names if "loss" in name.lower()]
    return losses[0] if guarded and losses and script.stem.isidentifier() else ""
