"""From a runner to a report: observe, diagnose, and where that cannot tell, test."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from eligibility.audit.costs import may_be_a_cost
from eligibility.audit.faults import CHOICES
from eligibility.audit.job import SIZES, Job
from eligibility.audit.judgement.audited_program import AuditedProgram
from eligibility.audit.judgement.diagnosis import (
    CROSSED_MEANS,
    diagnose,
    diagnose_and_match,
    up_to,
    wants_test,
)
from eligibility.audit.judgement.discounts import with_measured
from eligibility.audit.judgement.evidence import hides_values
from eligibility.audit.judgement.hotelling import EPISODES, RUNS
from eligibility.audit.judgement.importance_weights import with_targets
from eligibility.audit.judgement.measured import is_stepwise, measure
from eligibility.audit.judgement.moved_critic import depends_on_critic, is_scaled_by_critic
from eligibility.audit.judgement.pathwise import is_pathwise
from eligibility.audit.judgement.places import placed
from eligibility.audit.judgement.reading import structure
from eligibility.audit.judgement.refusal import inconclusive
from eligibility.audit.judgement.resolution import (
    has_continuous_draws,
    resolved,
    with_far_scores,
    with_other_values,
)
from eligibility.audit.judgement.second_update import with_second_update
from eligibility.audit.reporting.report import AuditReport, Convention, if_a_reward
from eligibility.audit.running.batch_steps import with_measured_ratio
from eligibility.audit.running.later_part import from_second
from eligibility.audit.running.runner import OtherRunner, Runner
from eligibility.audit.running.survey import RAN, Progress, Survey, has_critic, resampled, survey
from eligibility.audit.trace import (
    DENSE,
    LACKING,
    LATE,
    OWN_CLASS,
    OWN_REWARD,
    PAYS_ONCE,
    Trace,
)

_TESTED_STEPS = 100_000  # more of them would take a quarter of an hour

_SILENT = (
    "the first update has no gradient, as where the first return is its own baseline; the audit "
    "judges the second one"
)
_ONLY_SCALED = "another critic makes the gradients longer or shorter, and turns none"
_CUT = "return-cut-at-reward"
_ONCE = "rewards are 0 except at the end of an episode, as those of the environment are"
_AT_ENDS = (
    "the return starts again at every reward that is not 0, so the biases are measured with "
    "rewards that are 0 except at the end of an episode"
)
_THROUGH_ACTIONS = (
    "its policy follows the slope of a critic's values in the action, as SAC, TD3 and DDPG do, and "
    "no reward; the audit judges policies that weigh the log-probability of what they did"
)


def examine(
    runner: Runner,
    max_paths: int,
    samples: int,
    progress: Progress,
    known_of: Callable[[Survey], AuditedProgram],
    further: bool = True,
) -> AuditReport:
    """The report of a program.

    Args:
        runner: Runs it.
        max_paths: More paths are not enumerated.
        samples: How many are drawn then.
        progress: Told of the runs.
        known_of: Adds to a survey of the runs what else is known.
        further: Whether a later update is judged where the first one tells nothing.
    """

    def seen(by: Runner) -> Survey:
        return with_measured_ratio(survey(by, max_paths, samples, progress), by)

    plain = seen(runner)
    measured = measure(plain, runner)
    whole_numbers = measured is None and is_stepwise(plain, runner)

    def program_of(observed: Survey) -> AuditedProgram:
        program = with_measured(known_of(observed), measured)
        return replace(program, whole_numbers=whole_numbers)

    def again(other: Runner) -> AuditReport:
        return examine(other, max_paths, samples, progress, known_of, further=False)

    report = _examined(plain, runner, max_paths, progress, program_of)
    if report.verdict == "unexplained" and measured is not None:
        elsewhere = with_measured(known_of(plain), measure(plain, runner, measured))
        if _tells_more(elsewhere, program_of(plain)):
            told = diagnose(elsewhere)
            report = told if told.faults else report
    unknown = report.verdict == "unexplained"
    if plain.size != SIZES[0] and has_critic(plain) and (unknown or hides_values(plain)):
        drawn = survey(runner, 0, samples, progress)  # of the whole problem
        drawn = replace(drawn, beyond=drawn.beyond or plain.beyond)  # what one path shows
        whole = _explained(drawn, runner, progress, program_of)
        report = whole if whole is not None and (unknown or whole.faults) else report
    if whole_numbers and report.verdict in ("unexplained", "inconclusive"):
        report = _of_whole_numbers(report, program_of(plain))
    look = {"no-gradient": _of_later_update, "inconclusive": _with_late_optimizer}
    if further and report.verdict in look:
        other = look[report.verdict](plain, runner, again)
        if other is not None:
            return other
    dense, once = (
        any(kind in trace.notes for trace in plain.traces) for kind in (DENSE, PAYS_ONCE)
    )
    restarts = not dense and [finding.rule for finding in report.faults] == ["immediate-reward"]
    if restarts or (once and report.verdict == "unexplained"):
        late = OtherRunner(runner, at_ends=True)
        cut = _examined(seen(late), late, max_paths, progress, known_of)
        if cut.verdict in ("unbiased", "convention"):
            report = replace(cut, notes=(*cut.notes, _ONCE)) if once else _cut_at_rewards(cut)
    report = placed(report, plain, runner, program_of(plain).source)
    report = _if_not_a_cost(report, plain)
    return replace(report, notes=(*report.notes, *_stood_in_for(plain)))


def _of_later_update(
    plain: Survey, runner: Runner, again: Callable[[Runner], AuditReport]
) -> AuditReport | None:
    """The report of the first update that moves the policy; None if none is found.

    Those before it are its critic's alone, or the first one says nothing.
    """
    if not all(trace.outcome in RAN and trace.updates for trace in plain.traces):
        return None
    alone = bool(plain.policy) and not any(plain.policy & _trained(t) for t in plain.traces)
    other = OtherRunner(runner, awaited=tuple(plain.policy)) if alone else from_second(runner)
    if alone and not plain.policy & _trained(other.run(Job((), plain.size, raised=plain.raised))):
        return None
    later = again(other)
    if later.verdict in ("no-gradient", "inconclusive"):
        return None
    return later if alone else replace(later, updates=2, notes=(*later.notes, _SILENT))


def _with_late_optimizer(
    plain: Survey, runner: Runner, again: Callable[[Runner], AuditReport]
) -> AuditReport | None:
    """The report of a program that makes its optimizer after it has acted; else None.

    What it will train is known from its first run.
    """
    late = _noted(plain, LATE)
    if len(late) != 1:
        return None
    report = again(OtherRunner(runner, trained=tuple(map(int, late[0].split(",")))))
    return None if report.verdict == "inconclusive" else report


def _cut_at_rewards(report: AuditReport) -> AuditReport:
    """The report of a program whose return starts again at every reward but 0.

    Where every step earns something, as in CartPole, that is the immediate reward. Where only the
    last one of an episode does, it is the reward-to-go.
    """
    conventions = (*report.conventions, Convention(_CUT, CHOICES[_CUT], None))
    return replace(
        report,
        verdict="convention",
        conventions=conventions,
        summary=up_to(conventions),
        notes=(*report.notes, _AT_ENDS),
    )


def _trained(trace: Trace) -> set[int]:
    """The tensors that some update of a path trains."""
    return {tensor for update in trace.updates for tensor in update.owned}


def _stood_in_for(observed: Survey) -> list[str]:
    """Notes on what is the program's own: classes of environments, what they tell, its reward."""
    said = [
        f"the probe stands in for the program's own class {name}: observations, rewards and ends "
        "are the probe's"
        for name in _noted(observed, OWN_CLASS)
    ]
    said += [f"`info[{key!r}]` is 0 in the probe" for key in _noted(observed, LACKING)]
    for found in _noted(observed, OWN_REWARD):
        kind, file, line, name = found.split(":")
        said.append(
            f"the program makes no environment: its {kind} is `{name}` in line {line} of {file}, "
            "which the probe's rewards replace"
        )
        if any(step.time for trace in observed.traces for step in trace.steps):
            said.append(
                "its reward comes after several draws: the probe's is a sum with a part for each "
                "of them, so every draw is credited with the parts before it as well"
            )
    return said


def _if_not_a_cost(report: AuditReport, observed: Survey) -> AuditReport:
    """The report, in which a sign is wrong only if what the program trains on is a reward."""
    for found in _noted(observed, OWN_REWARD):
        kind, _, line, name = found.split(":")
        if kind == "reward" and may_be_a_cost(name):
            return if_a_reward(report, f"`{name}` in line {line}")
    return report


def _noted(observed: Survey, kind: str) -> list[str]:
    """What the notes of one kind say."""
    notes = {note for trace in observed.traces for note in trace.notes}
    return [note.removeprefix(kind).strip() for note in sorted(notes) if note.startswith(kind)]


def _tells_more(other: AuditedProgram, first: AuditedProgram) -> bool:
    """Whether the credit that was measured on another path leaves more to go by."""
    if other.measured is None or first.measured is None:
        return False
    same = other.constants == first.constants
    return not same or structure(other.measured) != structure(first.measured)


def _of_whole_numbers(report: AuditReport, program: AuditedProgram) -> AuditReport:
    """The report, which names no fault, of paths too long for their credit to be measured."""
    text = "small changes of the rewards change no gradient, and whole numbers do"
    finding = program.finding("integer-returns", text)
    return replace(report, verdict="biased", summary=finding.means, findings=(finding,))


def _examined(
    plain: Survey,
    runner: Runner,
    max_paths: int,
    progress: Progress,
    program_of: Callable[[Survey], AuditedProgram],
) -> AuditReport:
    observed = plain
    normal = has_continuous_draws(observed)
    if normal:
        observed = with_other_values(observed, runner)
    program = program_of(observed)
    report, match = diagnose_and_match(program)
    learned = with_targets(observed, runner) if match is None else None
    if learned is not None:
        other, rule = diagnose_and_match(program_of(learned))
        if rule is not None:
            observed, program, report, match = learned, program_of(learned), other, rule
            plain = replace(plain, targets=learned.targets)
    if depends_on_critic(match, program, runner):
        program_of = partial(_unshaped, program_of)
        program = program_of(observed)
        report, match = diagnose_and_match(program)
    if match is None and report.verdict != "unbiased" and is_pathwise(plain, runner):
        return inconclusive(program, _THROUGH_ACTIONS)
    if normal:
        report = resolved(report, observed, runner, program_of, max_paths, progress)
        program = program_of(plain)
    elif match is not None:
        report = with_far_scores(report, program, runner)
    if is_scaled_by_critic(match, program, runner):
        lost = program.finding("broadcast", _ONLY_SCALED, "warning")  # a baseline, and no more
        findings = (replace(lost, means=CROSSED_MEANS), *report.findings)
        report = replace(report, findings=findings)
    if not wants_test(program, report):
        return with_second_update(report, match, program, runner, program_of, progress)
    return _tested(observed, runner, progress, program_of)


def _explained(
    drawn: Survey,
    runner: Runner,
    progress: Progress,
    program_of: Callable[[Survey], AuditedProgram],
) -> AuditReport | None:
    """The report of paths that were drawn at random; None if no rule explains them."""
    program = program_of(drawn)
    report, match = diagnose_and_match(program)
    if match is None:
        return None
    return with_second_update(report, match, program, runner, program_of, progress)


def _unshaped(program_of: Callable[[Survey], AuditedProgram], seen: Survey) -> AuditedProgram:
    """The program, which is known not to change its rewards."""
    return replace(program_of(seen), shaped=False)


def _tested(
    observed: Survey,
    runner: Runner,
    progress: Progress,
    program_of: Callable[[Survey], AuditedProgram],
) -> AuditReport:
    """The statistical test on separate runs, if they are short enough."""
    episodes = [len({(s.environment, s.episode) for s in t.steps}) for t in observed.traces]
    each = max(sum(episodes) / len(episodes), 1.0)
    runs = max(RUNS, math.ceil(1.1 * EPISODES / each))
    steps = sum(len(trace.steps) for trace in observed.traces) // len(observed.traces)
    if runs * steps > _TESTED_STEPS:
        return inconclusive(
            program_of(observed),
            f"no rule explains the paths, and the statistical test would need {runs} runs of "
            f"{steps} steps; shorten the rollout, for instance by an argument of the program",
        )
    return diagnose(program_of(resampled(observed, runner, runs, progress)))
