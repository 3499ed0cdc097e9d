"""Conventions, which are not faults: those of a program, each with the bias it causes alone."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from eligibility.audit.arrays import Array, as_multiple
from eligibility.audit.faults import CHOICES
from eligibility.audit.judgement.advantage import (
    ACTION_VALUE,
    BY_COUNT,
    CROSSED,
    CUT,
    OF_WHITENED,
    OWN_RETURN,
    SCALED,
    Advantage,
)
from eligibility.audit.judgement.audited_program import AuditedProgram
from eligibility.audit.judgement.catalogue import transform_names
from eligibility.audit.judgement.evidence import Evidence
from eligibility.audit.judgement.exact import Bias, policy_gradient, policy_terms
from eligibility.audit.judgement.importance_weights import STEP
from eligibility.audit.judgement.match import Match, with_offset
from eligibility.audit.judgement.timeline import Timeline, timeline
from eligibility.audit.reporting.report import Convention


class _Size(NamedTuple):
    """A bias and its standard error."""

    bias: float | None
    error: float = 0.0


_UNKNOWN = _Size(None)
# In words, where a scope is not the batch.
_OVER = {
    "episode": " over each episode",
    "time": " at each time",
    "time-of-all": " at each time, with 0 for episodes that have ended",
    "returns": " over the returns",
    "sums": " over the undiscounted returns",
}
_RUNS = 20  # of which a standard error can be taken
# Without bias whatever the problem, or outside of what the audit looks at.
_UNBIASED = ("baseline", "whole-episode-return", "leave-one-out", "constant-scale")
_NOTED = ("gradient-clipping", "running-normalisation")  # what a run itself tells
HARMLESS = ("rollout-cut", "gradient-clipping", "shared-critic-parameters")


def conventions_of(
    program: AuditedProgram, evidence: Evidence, line: Timeline, match: Match | None, measured: Bias
) -> tuple[Convention, ...]:
    """Those of the match, each with the bias that it would cause alone."""
    named: dict[str, _Size] = {}
    if match is not None:
        for name in match.form.conventions:
            named[name] = _bias_alone(
                evidence, line, match, name, measured, program.survey.exhaustive
            )
        if not match.use and line.is_cut(evidence):
            named["rollout-cut"] = _UNKNOWN
        if match.changed:
            named[match.changed] = _Size(0.0) if match.changed in _UNBIASED else _UNKNOWN
        if match.weights:
            off = measured.residual if program.survey.exhaustive else None
            named[match.weights] = _Size(off if match.weights == STEP else 0.0)
        if match.offset and program.survey.exhaustive:
            named[match.changed] = _Size(_bias_of_offset(evidence, line, match))
        if match.entropy > program.tolerance:
            named["entropy-bonus"] = _Size(_bias_of_entropy(evidence, line, match))
        if abs(match.scale - 1.0) > max(1e-6, program.tolerance) and not match.plain.norm:
            named["constant-scale"] = _Size(0.0)
    notes = {note for trace in program.survey.traces for note in trace.notes}
    named |= {name: _UNKNOWN for name in _NOTED if name in notes}
    if program.survey.shared:
        named["shared-critic-parameters"] = _UNKNOWN
    return tuple(
        Convention(
            name,
            CHOICES[name],
            0.0 if size.bias is not None and size.bias < program.tolerance else size.bias,
            size.error,
        )
        for name, size in named.items()
    )


def _bias_alone(
    evidence: Evidence, line: Timeline, match: Match, name: str, measured: Bias, exhaustive: bool
) -> _Size:
    """Residual of a program that is right but for one convention."""
    if name == "baseline" or (not exhaustive and name in _UNBIASED):
        return _Size(0.0)
    if name in ("bootstrapped", "gae", BY_COUNT, CUT):
        return _Size(measured.residual) if exhaustive else _UNKNOWN
    form = match.plain
    if name == SCALED and name not in transform_names(form.transform):
        return _UNKNOWN  # of the rewards, before values enter
    right = replace(
        form, time_discount=not form.free_of_time, transform="", coupling="", norm="", epsilon=0.0
    )
    if name == "gamma-t-dropped":
        alone = replace(right, time_discount=False)
    elif name == form.norm:
        alone = replace(right, norm=name)
    elif name == "whole-episode-return":
        alone = right
    else:
        parts = [part for part in form.transform.split("+") if transform_names(part) == [name]]
        late = any(part.endswith("-late") for part in parts)
        alone = replace(
            right,
            transform="+".join(parts),
            epsilon=form.epsilon,
            time_discount=right.time_discount or late,
        )
    per_path = evidence.gradient(alone.weights(line))
    terms = policy_terms(evidence, line, form.discount, time_discount=True)
    if exhaustive:
        return _Size(as_multiple(evidence.probability @ per_path, evidence.probability @ terms)[1])
    return _of_sample(per_path, terms)


def _of_sample(per_path: Array, terms: Array) -> _Size:
    """The bias that independent paths show [P, D], less what chance adds to its square."""
    mean, true = per_path.mean(axis=0), terms.mean(axis=0)
    size, square = float(np.linalg.norm(mean)), float(true @ true)
    if size == 0.0 or square == 0.0 or len(terms) < _RUNS:
        return _UNKNOWN
    apart = per_path - float(mean @ true) / square * terms
    error = float(np.sqrt(apart.var(axis=0, ddof=1).sum() / len(apart))) / size
    off = float(np.linalg.norm(apart.mean(axis=0))) / size
    return _Size(float(np.sqrt(max(off**2 - error**2, 0.0))), error)


def _bias_of_entropy(evidence: Evidence, line: Timeline, match: Match) -> float:
    true = policy_gradient(evidence, line, match.form.discount)
    bonus = evidence.probability @ np.einsum("pi,pid->pd", line.present, evidence.entropy)
    return float(np.linalg.norm(match.entropy * bonus) / np.linalg.norm(true))


def _bias_of_offset(evidence: Evidence, line: Timeline, match: Match) -> float:
    smaller = with_offset(evidence, match.offset)
    pair = (policy_gradient(each, line, match.form.discount) for each in (smaller, evidence))
    return as_multiple(*pair)[1]


def bias_of_cut(evidence: Evidence, first: int, discount: float) -> float:
    """How far the first decisions' gradient without the rewards after them is from the one with.

    Args:
        evidence: Paths whose ``first`` decisions are those of one update, and the rest of the next.
        first: Their number.
        discount: γ.
    """
    own = evidence.present & (np.arange(evidence.present.shape[1]) < first)
    credits = [
        line.discounted(discount) * own
        for line in (timeline(evidence), timeline(evidence.restricted(own)))
    ]
    true, cut = np.einsum(
        "p,kpi,pid->kd", evidence.probability, np.stack(credits), evidence.eligibility
    )
    return as_multiple(cut, true)[1]


def describe(match: Match, tolerance: float) -> str:
    """A match in words; an entropy term below ``tolerance`` is rounding."""
    form = match.plain
    credit = form.credit.rule.replace("-", " ") or "reward-to-go"
    if isinstance(match.form, Advantage):
        kind = "generalised advantage" if match.form.baseline else "λ-return"
        steps = f"{match.form.steps} steps, " if match.form.steps else ""
        estimated = f"{kind} ({steps}λ = {match.form.decay:g})"
        value = {"time": "V(s, t)", "history": "V(s₀, …, s_t)"}.get(match.form.of, "V(s)")
        if match.form.ending in CROSSED:
            value = "the batch's mean V(s)"
        if OWN_RETURN in match.form.faults and match.values is not None:
            credit = f"{credit} minus {match.values[0]:.3g} × the batch's own mean"
        else:
            credit = f"{credit} minus {value}" if match.form.of_return else estimated
            credit = "Q(s, a) of the critic" if match.form.ending == ACTION_VALUE else credit
    words = [f"{match.scale:.4g} × {credit} (γ = {form.discount:g})"]
    if isinstance(match.form, Advantage) and match.form.rewards is not None:
        rewards = match.form.rewards
        over = _OVER.get(rewards.scope, "")
        what = "returns" if match.form.ending == OF_WHITENED else "rewards"
        words += [f"of {what} {name}{over}" for name in transform_names(rewards.transform)]
    if form.time_discount:
        words.append("times γ^t")
    if form.transform:
        over = _OVER.get(form.scope, "")
        words += [name.replace("-", " ") + over for name in transform_names(form.transform)]
    words += [part.replace("-", " ") for part in (form.coupling, form.norm) if part]
    if abs(match.entropy) > max(1e-6, tolerance):
        words.append(f"plus {match.entropy:.3g} × entropy")
    if match.note:
        words.append(match.note)
    if match.use:
        words.append(f"of {match.use.replace('-', ' ')} only")
    return ", ".join(words)
