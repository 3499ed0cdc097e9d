"""What another critic changes: what a program is taken to make of its rewards, or only a factor.

What a critic says of a state looks like a part of the rewards, whatever is wrong with the way in
which it enters the credits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from eligibility.audit.job import Job
from eligibility.audit.judgement.audited_program import AuditedProgram
from eligibility.audit.judgement.evidence import Evidence, gather
from eligibility.audit.judgement.match import Match, with_rewards
from eligibility.audit.judgement.matching import fitted
from eligibility.audit.judgement.timeline import timeline
from eligibility.audit.running.runner import Runner, run_all
from eligibility.audit.trace import Trace

_DISTANCE = 1e-1  # of a tensor
_PATHS = 16
_NONE = 1e-6  # relative square of a gradient that says nothing
_CHANGED = 1e-6  # relative change of a factor that is not rounding


def depends_on_critic(match: Match | None, program: AuditedProgram, runner: Runner) -> bool:
    """Whether what a match has in the place of the rewards moves with the critic."""
    critic = _critic_of(program)
    if match is None or match.changed != "reward-changed" or not critic:
        return False
    seen = _with_other_critic(_longest(program), critic, program, runner)
    if seen is None:
        return True
    seen = with_rewards(seen, match.rewards, match.added)
    return fitted(seen, timeline(seen), match.form, match.use, program.tolerance) is None


def is_scaled_by_critic(match: Match | None, program: AuditedProgram, runner: Runner) -> bool:
    """Whether the critic makes gradients that it does not turn longer or shorter.

    So it does where all values are subtracted from every return, and centring takes them away
    again: they are only left in the deviation.
    """
    critic = _critic_of(program)
    if match is None or match.changed != "rescaled" or not critic:
        return False
    paths = _longest(program)
    before = gather(replace(program.survey, traces=paths, exhaustive=False))
    after = _with_other_critic(paths, critic, program, runner)
    if before is None or after is None or before.ascent.shape != after.ascent.shape:
        return False
    square = np.maximum((before.ascent**2).sum(axis=1), 1e-300)
    factor = (before.ascent * after.ascent).sum(axis=1) / square
    turned = np.linalg.norm(after.ascent - factor[:, None] * before.ascent)
    straight = turned < program.tolerance * np.linalg.norm(after.ascent)
    return bool(straight and np.abs(factor[square > _NONE * square.max()] - 1.0).max() > _CHANGED)


def _critic_of(program: AuditedProgram) -> list[int]:
    """The tensors that are the critic's alone; none if it has no part in the gradients."""
    base = program.survey
    used = program.values != "no"
    return sorted({tensor for tensor, _ in base.directions} - base.policy) if used else []


def _longest(program: AuditedProgram) -> tuple[Trace, ...]:
    """Some of the longest paths."""
    return tuple(sorted(program.survey.traces, key=lambda trace: -len(trace.steps))[:_PATHS])


def _with_other_critic(
    paths: Sequence[Trace], critic: Sequence[int], program: AuditedProgram, runner: Runner
) -> Evidence | None:
    """The same paths with another critic."""
    base = program.survey
    job = Job((), base.size, base.directions_each, raised=base.raised)
    job = replace(job, tensor=critic[0], also=tuple(critic[1:]), distance=_DISTANCE)
    moved = run_all(runner, (replace(job, prescribed=path.picked) for path in paths))
    return gather(replace(base, traces=tuple(moved), exhaustive=False))
