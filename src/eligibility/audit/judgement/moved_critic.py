"""Whether rewards that seem to be changed are the same with another critic.

What a critic says of a state looks like a part of the rewards, whatever is wrong with the way in
which it enters the credits.
"""

from __future__ import annotations

from dataclasses import replace

from eligibility.audit.job import Job
from eligibility.audit.judgement.audited_program import AuditedProgram
from eligibility.audit.judgement.evidence import gather
from eligibility.audit.judgement.match import Match, with_rewards
from eligibility.audit.judgement.matching import fitted
from eligibility.audit.judgement.timeline import timeline
from eligibility.audit.running.runner import Runner, run_all

_DISTANCE = 1e-1  # of a tensor
_PATHS = 16


def depends_on_critic(match: Match | None, program: AuditedProgram, runner: Runner) -> bool:
    """Whether what a match has in the place of the rewards moves with the critic."""
    if match is None or match.changed != "reward-changed" or program.values == "no":
        return False
    base = program.survey
    critic = sorted({tensor for tensor, _ in base.directions} - base.policy)
    if not critic:
        return False
    job = Job((), base.size, base.directions_each, raised=base.raised)
    job = replace(job, tensor=critic[0], also=tuple(critic[1:]), distance=_DISTANCE)
    paths = sorted(base.traces, key=lambda trace: -len(trace.steps))[:_PATHS]
    jobs = (replace(job, prescribed=path.picked) for path in paths)
    seen = gather(replace(base, traces=tuple(run_all(runner, jobs)), exhaustive=False))
    if seen is None:
        return True
    seen = with_rewards(seen, match.rewards, match.added)
    return fitted(seen, timeline(seen), match.form, match.use, program.tolerance) is None
