"""Programs that add a number of the states to each reward, or put one in its place.

The numbers are unknown, and the gradients are linear in them, unless credits are divided by their
deviation; given them, the program is judged like any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from eligibility.audit.arrays import Array, Integers
from eligibility.audit.judgement.advantage import Advantage
from eligibility.audit.judgement.audited_program import AuditedProgram
from eligibility.audit.judgement.catalogue import SCOPES, WHITENED, Candidate, candidates
from eligibility.audit.judgement.credits import CREDITS
from eligibility.audit.judgement.critic import linear_columns
from eligibility.audit.judgement.entropy import entropy_columns
from eligibility.audit.judgement.evidence import Evidence, episodes_of, histories
from eligibility.audit.judgement.explained import Explained, fitted_match_of, match_of
from eligibility.audit.judgement.match import (
    MORE_EQUATIONS,
    explaining,
    tell_equations,
    with_rewards,
)
from eligibility.audit.judgement.other_objectives import NONE, plain_forms
from eligibility.audit.judgement.timeline import Timeline, timeline

_STEPS, _MOVE = 12, 1e-5  # of Gauss and Newton's method, and what its slopes are taken by
_SHARES = 1.0, 0.5, 0.2, 0.05  # of a step that may overshoot
_FALLS = 0.9  # of what is left of the gradients: what the next step may leave
_FINER = 0.1  # of the tolerance: what may be left at the end
_WHOLE = "whole-episode-return"
_UNMOVED = ("silent", "valued")  # kinds of credit that no reward moves
_ADDED = "with a number that depends on the next state added to each reward"
_REPLACED = (
    "with a number of unknown sign, which depends on the next state, in place of each reward"
)
_BONUS = "with a number that depends on the states so far added to each reward"


def with_added_rewards(program: AuditedProgram, evidence: Evidence) -> Explained | None:
    """A number of the next state that is added to each reward.

    Only where the credit was measured, from which such a number drops out, and without a fault.
    """
    told = program.constants.told
    if evidence.long or not program.shaped or told is None or told.credit is None:
        return None
    known, critic = program.constants, program.values
    forms = [(f, kind != "no") for kind in sorted({"no", critic}) for f in plain_forms(known, kind)]
    if _WHOLE in told.rules:
        whole = next(credit for credit in CREDITS if credit.rule == _WHOLE)
        forms += [(form, critic != "no") for form in plain_forms(known, "no", whole)]
    for form, valued in forms:
        if form.faults:
            continue
        own, *values = linear_columns(evidence, timeline(evidence), form)
        columns = [own, *(values if valued else ())]
        columns += entropy_columns(evidence, timeline(evidence), form.norm)
        columns += _of_next_states(evidence, form)
        factors = explaining(evidence, columns, program.tolerance)
        if factors is not None and factors[0]:
            found = _table(evidence, factors / factors[0])
            explained = _with_numbers(program, evidence, None, found, _ADDED)
            if explained is not None:
                return explained
    return None


def with_added_and_whitened(program: AuditedProgram, evidence: Evidence) -> Explained | None:
    """The same where the returns are whitened, perhaps less V(s), before or after that."""
    line, told = timeline(evidence), program.constants.told
    if evidence.long or not program.shaped or told is None or not told.divides:
        return None
    rewards = [evidence.reward, *_next_state_steps(evidence)]
    lines = [timeline(replace(evidence, reward=each)) for each in rewards]
    values = [(evidence.state == state).astype(float) for state in range(evidence.states)]
    for form in candidates(line, program.constants.discounts, 2, told):
        usual = form.transform in WHITENED and form.scope in SCOPES and not form.time_discount
        if form.faults or not usual:
            continue
        credits = [form.credit.of(each, form.discount) for each in lines]
        outside = replace(form, transform="")
        after = [evidence.gradient(outside.finished(each, line)).ravel() for each in values]
        entropy = entropy_columns(evidence, line, form.norm)
        ways: list[tuple[list[Array], Sequence[Array]]] = [(credits, entropy)]
        if program.critic:
            ways += [(credits, [*entropy, *after]), ([*credits, *values], entropy)]
        for inside, beside in ways:
            factors = _inside(evidence, line, form, inside, beside, program.tolerance)
            if factors is not None:
                added = _table(evidence, factors[: len(rewards) - 1])
                explained = _with_numbers(program, evidence, None, added, _ADDED)
                if explained is not None:
                    return explained
    return None


def _inside(
    evidence: Evidence,
    line: Timeline,
    form: Candidate,
    credits: Sequence[Array],
    beside: Sequence[Array],
    tolerance: float,
) -> Array | None:
    """The factors of all credits but the first with which ``form`` explains the gradients.

    By the method of Gauss and Newton, with the ε of the deviation; None if it does not converge,
    or if as few different episodes might be explained by accident.

    Args:
        evidence: The gradients.
        line: The line of the same decisions.
        form: What divides the sum of the credits by its deviation.
        credits: [P, I] each.
        beside: [P * D] gradients that may be added, each by a factor of its own.
        tolerance: Residuals below it are rounding.
    """
    unknowns = len(credits) + 1 + len(beside)  # with ε and the scale
    if not tell_equations(episodes_of(evidence), unknowns + MORE_EQUATIONS):
        return None
    stack, target = np.stack(credits), evidence.ascent.ravel()

    def gradient(by: Array) -> Array:
        own = replace(form, epsilon=float(by[-1]))
        credit = np.tensordot(np.array([1.0, *by[:-1]]), stack, 1)
        flat: Array = evidence.gradient(own.finished(credit, line)).ravel()
        return flat

    def left(by: Array) -> float:
        matrix = np.array([gradient(by), *beside]).T
        if not np.isfinite(matrix).all():
            return np.inf
        factors = np.linalg.lstsq(matrix, target, rcond=1e-11)[0]
        return float(np.linalg.norm(target - matrix @ factors) / np.linalg.norm(target))

    by = np.zeros(len(credits))
    units = _MOVE * np.eye(len(by))
    least = left(by)
    for _ in range(_STEPS):
        slopes = [(gradient(by + unit) - gradient(by - unit)) / (2.0 * _MOVE) for unit in units]
        matrix = np.array([gradient(by), *slopes, *beside]).T
        if not np.isfinite(matrix).all():
            return None
        solution = np.linalg.lstsq(matrix, target, rcond=NONE)[0]
        step = solution[1 : 1 + len(by)] / (solution[0] or 1.0)
        moved = [by + share * step for share in _SHARES]
        for each in moved:
            each[-1] = max(each[-1], 0.0)
        found = [left(each) for each in moved]
        best = int(np.argmin(found))
        if found[best] > _FALLS * least:
            return None
        by, least = moved[best], found[best]
        if least < _FINER * tolerance:
            return np.asarray(by[:-1])
    return None


def with_bonuses(program: AuditedProgram, evidence: Evidence) -> Explained | None:
    """A number of all states that an episode has met so far that is added to each reward.

    Under the same conditions, and without a critic, whose values might be such numbers.
    """
    told = program.constants.told
    if evidence.long or told is None or told.credit is None or program.values != "no":
        return None
    _, met, count = histories(evidence)
    bonuses = [((met == number) & evidence.present).astype(float) for number in range(count)]
    parts = [replace(evidence, reward=bonus) for bonus in bonuses if bonus.any()]
    for form in plain_forms(program.constants, "no"):
        columns = [linear_columns(part, timeline(part), form)[0] for part in (evidence, *parts)]
        factors = explaining(evidence, columns, program.tolerance)
        if factors is None or factors[0] <= 0.0:
            continue
        added = sum(factor * part.reward for factor, part in zip(factors[1:], parts, strict=True))
        seen = replace(evidence, reward=evidence.reward + added / factors[0])
        if (match := match_of(program, seen)) is not None and not match.form.faults:
            changed = replace(match, note=_BONUS, changed="reward-changed", here_only=True)
            return Explained(changed, seen)
    return None


def with_replaced_rewards(program: AuditedProgram, evidence: Evidence) -> Explained | None:
    """A number of the next state in the place of each reward.

    Only where no reward moves the gradients, and where no numbers of the own states do as well.
    What divides all credits of a batch only makes its gradient longer or shorter, so that the
    gradients' directions are enough.
    """
    measured = program.measured
    if evidence.long or measured is None or measured.kind not in _UNMOVED or not program.shaped:
        return None
    line, plain = timeline(evidence), next(plain_forms(program.constants, "no"))
    alone = [*linear_columns(evidence, line, plain)[1:], *entropy_columns(evidence, line, "")]
    if explaining(evidence, alone, program.tolerance) is not None:
        return None
    own = np.unique(evidence.reward[evidence.present].round(9))
    nothing = own, np.zeros(len(own))
    for form in _of_returns(program):
        columns = linear_columns(evidence, line, form)[1:] if program.values != "no" else []
        columns = [*columns, *_of_next_states(evidence, form)]
        entropy = entropy_columns(evidence, line, form.norm)
        factors = explaining(evidence, [*entropy, *columns], program.tolerance)
        if factors is None:
            factors = _up_to_each_paths_factor(evidence, columns, program.tolerance)
        if factors is not None:
            explained = _with_numbers(
                program.untold, evidence, nothing, _table(evidence, factors), _REPLACED
            )
            if explained is not None:
                return explained
    return None


def _of_returns(program: AuditedProgram) -> Iterator[Advantage]:
    """Rewards-to-go, as they are, and centred as before a deviation divides them.

    Not advantages of the next state's value: numbers of that state would stand for it.
    """
    forms = [f for f in plain_forms(program.constants, program.values) if f.ending == "return"]
    yield from forms
    for form, scope in product(forms, SCOPES):
        yield replace(form, form=replace(form.form, transform="centred", scope=scope))


def _next_states(evidence: Evidence) -> tuple[Integers, Integers]:
    """[n] the states that steps led to, and whether the episode ended there: each pair once."""
    ended = (evidence.terminated | evidence.truncated).astype(int)
    pairs = np.stack([evidence.next_state[evidence.present], ended[evidence.present]])
    states, ends = np.unique(pairs, axis=1)
    return states, ends


def _next_state_steps(evidence: Evidence) -> Iterator[Array]:
    """[P, I] 1 at the steps into each of the next states, in their order."""
    ended = (evidence.terminated | evidence.truncated).astype(int)
    for state, end in zip(*_next_states(evidence), strict=True):
        yield ((evidence.next_state == state) & (ended == end)).astype(float)


def _of_next_states(evidence: Evidence, form: Advantage) -> list[Array]:
    """The gradients of ``form`` if each step into one of the next states earned 1."""
    parts = [replace(evidence, reward=each) for each in _next_state_steps(evidence)]
    return [linear_columns(part, timeline(part), form)[0] for part in parts]


def _table(evidence: Evidence, factors: Array) -> Array:
    """[states, 2] the last factors, by the next states that they belong to."""
    found, pairs = np.zeros((evidence.states, 2)), _next_states(evidence)
    found[pairs] = factors[-len(pairs[0]) :]
    return found


def _with_numbers(
    program: AuditedProgram,
    evidence: Evidence,
    rewards: tuple[Array, Array] | None,
    added: Array,
    note: str,
) -> Explained | None:
    """The rule for such rewards, if there is one without a fault."""
    seen = with_rewards(evidence, rewards, added)
    match = match_of(program, seen) or fitted_match_of(program, seen)
    if match is None or match.form.faults or not np.abs(added).max() > NONE:
        return None
    changed = replace(match, note=note, changed="reward-changed", rewards=rewards, added=added)
    return Explained(changed, seen)


def _up_to_each_paths_factor(
    evidence: Evidence, columns: Sequence[Array], tolerance: float
) -> Array | None:
    """The factors with which columns, [P * D] each, add up to the direction of every gradient.

    None if there is no such sum, or more than one. What a batch's credits are divided by only makes
    its gradient longer or shorter.
    """
    size = np.linalg.norm(evidence.ascent, axis=1, keepdims=True)
    along = evidence.ascent / np.where(size > 0.0, size, 1.0)
    matrix = np.array(columns).T
    _, sizes, rows = np.linalg.svd(matrix, full_matrices=False)
    basis = rows[sizes > NONE * sizes[0]].T  # [n, r] combinations that do not vanish
    sums = (matrix @ basis).reshape(*evidence.ascent.shape, -1)  # [P, D, r]
    lengths = np.einsum("pdr,pd->pr", sums, along)
    beside = (sums - along[..., None] * lengths[:, None]).reshape(matrix.shape[0], -1)
    _, left, found = np.linalg.svd(beside, full_matrices=False)
    if len(left) < 2 or left[-1] > tolerance * sizes[0] or left[-2] < NONE * sizes[0]:
        return None
    factor = lengths @ found[-1]
    if factor.min() < -NONE * np.abs(factor).max() < 0.0 and factor.max() > -factor.min() * NONE:
        return None  # some gradients point the other way
    return np.asarray(basis @ found[-1] * np.sign(factor.sum()))
