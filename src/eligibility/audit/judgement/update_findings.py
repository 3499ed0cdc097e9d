"""What is seen in several updates without a rule: left-over gradients, targets, ratios, copies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from eligibility.audit.arrays import Array
from eligibility.audit.job import Job
from eligibility.audit.judgement.advantage import ACTION_VALUE, OWN_RETURN
from eligibility.audit.judgement.audited_program import AuditedProgram
from eligibility.audit.judgement.match import Match
from eligibility.audit.judgement.measured import Measured, measure
from eligibility.audit.judgement.pointers import subtracted_line
from eligibility.audit.reporting.report import Finding
from eligibility.audit.running.batch_steps import has_steps_of_parts
from eligibility.audit.running.rounds import Rounds
from eligibility.audit.running.runner import OtherRunner, Runner
from eligibility.audit.running.sampling_calls import executing_call
from eligibility.audit.running.slopes import action_keys
from eligibility.audit.running.survey import RAN
from eligibility.audit.trace import (
    CLIPPED,
    LEFT_OVER,
    RATIO,
    SHUFFLED,
    SIDE,
    SWAPPED,
    TARGET,
    Fact,
    Trace,
)

_ROUNDING = 1e-6  # distances of a ratio from 1 that are none
_SHARE = 1e-6  # of a square
_LATER = 8  # updates for which an acting copy may stay as it is, with a ratio


def facts_of_updates(
    program: AuditedProgram, rounds: Rounds, runner: Runner, match: Match | None
) -> Iterator[Finding]:
    """What the gradients, the graphs and the actions of several updates show by themselves."""
    seen = rounds.inspected.facts
    second = rounds.second.traces if rounds.second else ()
    left = next(
        (f for t in (rounds.inspected, *second) for f in t.facts if f.kind == LEFT_OVER), None
    )
    if left is not None:
        text = (
            f"what optimizer step {left.update + 1} used contains the gradient of an earlier "
            f"step, {left.size:.2g} times as large as the whole"
        )
        yield program.finding("gradients-not-zeroed", text, seen=left.place)
    # a square of the policy's tensors alone is a density or a penalty, such as that of a number
    # that moves with the policy
    policy = program.survey.policy
    targets = (fact for fact in seen if fact.kind == TARGET)
    target = next((fact for fact in targets if not policy.issuperset(fact.tensors)), None)
    if target is not None:
        text = "both sides of the critic's squared error lead to the same parameters"
        yield program.finding("critic-target-not-detached", text, seen=target.place)
    swapped = next((fact for fact in seen if fact.kind == SWAPPED), None)
    if swapped is not None:
        text = "torch.clamp gets a lower bound above its upper one, and returns the upper one"
        yield program.finding("clip-bounds-swapped", text, seen=swapped.place)
    side = next((fact for fact in seen if fact.kind == SIDE and fact.size < 0), None)
    if side is not None:
        text = "the loss falls with the larger of the ratio's two objectives"
        yield program.finding("clip-on-the-wrong-side", text, seen=side.place)
    yield from _ratios(program, rounds)
    yield from _shuffled_apart(program, runner)
    if _of_returns(program, match):
        yield from _critic_first(program, runner)
    if _acting_moves(program, rounds, rounds.inspected) is False:
        yield from _stale(program, rounds, runner)


def _of_returns(program: AuditedProgram, match: Match | None) -> bool:
    """Whether returns are what actions are credited with: as measured, or by the rule that fits."""
    if program.measured is not None:
        return program.measured.kind in ("linear", "rescaled")
    return match is not None and getattr(match.form, "ending", "") != ACTION_VALUE


def _critic_first(program: AuditedProgram, runner: Runner) -> Iterator[Finding]:
    """A critic that learns from a batch before its values are subtracted from the batch's returns.

    Optimizers move nothing while a program is audited. So the critic is moved a little after its
    step: the policy's gradient for the same batch must not follow, if the step follows the rewards.
    """
    ran = [trace for trace in program.survey.traces if trace.outcome in RAN and trace.updates]
    if not ran:
        return
    policy = program.survey.policy
    trace = max(ran, key=lambda trace: len(trace.steps))
    before, after = _steps_before_policy(trace, policy, has_steps_of_parts(program.survey))
    if not before:
        return
    job = Job(trace.picked, program.survey.size, directions=1, raised=program.survey.raised)
    rewards = tuple(1.0 + step.reward for step in trace.steps if step.executed)
    jobs = job, replace(job, perturbed=before), replace(job, rewards=rewards)
    plain, moved, other = (runner.run(each).updates for each in jobs)
    if min(map(len, (plain, moved, other))) <= after:
        return
    learns = any(plain[step - 1].ascent != other[step - 1].ascent for step in before)
    here, there = (
        np.array([row for tensor in sorted(policy) for row in updates[after].along(tensor) or ()])
        for updates in (plain, moved)
    )
    if learns and not np.allclose(here, there, rtol=_ROUNDING, atol=0.0):
        text = (
            "the critic's values are read after its optimizer step: moving the critic by that "
            "step changes the policy's gradient for the same batch"
        )
        yield program.finding(OWN_RETURN, text, seen=trace.updates[before[-1] - 1].place)


def _shuffled_apart(program: AuditedProgram, runner: Runner) -> Iterator[Finding]:
    """Only one of credits and scores is shuffled: in reversed order they meet the other way round.

    What the rewards move of each weight is then what they moved of its mirror's, up to a factor.
    """
    base, own = program.survey, program.measured
    if own is None or not any(SHUFFLED in trace.notes for trace in base.traces):
        return
    turned = measure(base, OtherRunner(runner, turned=True))
    if turned is None or turned.credit.shape != own.credit.shape:
        return
    if _has_rows_of(turned, own.credit[::-1]) and not _has_rows_of(turned, own.credit):
        text = "with the shuffled rows in reversed order, each action gets another one's credit"
        yield program.finding("shuffled-apart", text)


def _has_rows_of(measured: Measured, credit: Array) -> bool:
    """Whether each row of a credit is one of another, times a number."""
    along = (measured.credit * credit).sum(axis=1) ** 2
    sizes = (measured.credit**2).sum(axis=1) * (credit**2).sum(axis=1)
    return bool((sizes > 0).all() and (along > (1.0 - _SHARE) * sizes).all())


def _steps_before_policy(
    trace: Trace, policy: frozenset[int], parted: bool
) -> tuple[tuple[int, ...], int]:
    """The critic's steps, counted from 1, before the policy's first for the same batch; its index.

    In later epochs of a batch the values are of a later critic also where one optimizer steps both;
    in a step for each part of a batch they need not be.
    """
    met: set[int] = set()  # batches, by the number of steps that were taken before
    for index, update in enumerate(trace.updates):
        batch = update.steps_before
        moves = any(np.any(update.along(tensor) or ()) for tensor in policy)
        if not moves or (batch in met and not parted):
            continue
        met.add(batch)
        before = tuple(
            number
            for number, earlier in enumerate(trace.updates[:index], 1)
            if earlier.steps_before == batch and not policy.intersection(earlier.owned)
        )
        if before:
            return before, index
    return (), 0


def _stale(program: AuditedProgram, rounds: Rounds, runner: Runner) -> Iterator[Finding]:
    """What acts as before the parameters moved: for good, or with a ratio until it is refreshed.

    A ratio of each action's probability is not enough: it corrects neither the states that are met
    nor the rewards to come. That of a whole path is one, and only a clip is known not to be that.
    """
    seen, notes = rounds.inspected, {RATIO, CLIPPED} & set(rounds.inspected.notes)
    if not notes and not any(fact.kind == RATIO for fact in seen.facts):
        text = "after the parameters moved, actions still came from the old probabilities"
        yield program.finding("acting-policy-stale", text)
        return
    assert rounds.second is not None
    last = rounds.first.updates[-1]
    given = rounds.first.picked[: last.draws_before]
    held = rounds.held
    job = Job(given, rounds.second.size, raised=program.survey.raised, held=held * _LATER)
    on = runner.run(replace(job, perturbed=rounds.ends))
    if _acting_moves(program, rounds, on) is False:
        text = (
            f"parameters moved after the first of {_LATER + 1} updates, and all actions still "
            "came from the old probabilities"
        )
        clips = ", with a ratio that is clipped" if CLIPPED in notes else ", with a ratio"
        severity = "fault" if CLIPPED in notes else "warning"
        yield program.finding("acting-policy-stale", text + clips, severity)


def _ratios(program: AuditedProgram, rounds: Rounds) -> Iterator[Finding]:
    """Ratios of probabilities that are 1 where they must not be, and the other way round."""
    seen = [fact for fact in rounds.inspected.facts if fact.kind == RATIO]
    first = [fact for fact in seen if fact.update < rounds.held]
    later = [fact for fact in seen if fact.update >= rounds.held]
    plain = all(fact.size < _ROUNDING for fact in first)
    acting = _acting_moves(program, rounds, rounds.inspected)
    off = [fact for fact in later if fact.size > _ROUNDING]
    if plain and off and acting:
        text = (
            f"the second update begins with a ratio that differs from 1 by {off[0].size:.1%}, "
            "although its actions come from the policy that is scored"
        )
        yield program.finding("old-log-prob-stale", text, seen=_old(program, off[0].place))
    again = list(_ratios_after_a_step(program, rounds.repeated)) if rounds.repeated else []
    if again and all(fact.size < 1e-9 for fact in again):
        text = "the policy moved in its first optimizer step, and every later ratio is still 1"
        yield program.finding("ratio-always-one", text, seen=_old(program, again[0].place))


def _ratios_after_a_step(program: AuditedProgram, trace: Trace) -> Iterator[Fact]:
    """The ratios of a run that were computed after the policy's own first optimizer step."""
    policy = program.survey.policy
    moved = (
        number
        for number, update in enumerate(trace.updates, 1)
        if any(update.along(tensor) is not None for tensor in policy)
    )
    first = next(moved, len(trace.updates))
    return (fact for fact in trace.facts if fact.kind == RATIO and fact.update >= first)


def _old(program: AuditedProgram, ratio: tuple[str, int]) -> tuple[str, int]:
    """Where the old log-probabilities of a ratio were made, if its statement subtracts them."""
    if program.source is None or ratio[0] != str(program.source.path):
        return ratio
    return ratio[0], subtracted_line(program.source, ratio[1]) or ratio[1]


def _acting_moves(program: AuditedProgram, rounds: Rounds, trace: Trace) -> bool | None:
    """Whether actions after the first update of ``trace`` were drawn at the moved parameters.

    None if no action was drawn after them that a parameter ever moves.
    """
    call = executing_call(program.survey.traces)
    last = rounds.first.updates[-1]
    # the next action may have been drawn before the update, and an evaluation may draw none
    later = replace(trace, steps=trace.steps[last.steps_before :])
    keys = [key for key, drawn in action_keys(later, call) if drawn >= last.draws_before]
    known = program.survey.slopes or {}
    # nothing moves what explores next to the policy
    told = [key for key in keys if key not in known or known[key].moves]
    return any(key not in known for key in told) if told else None
