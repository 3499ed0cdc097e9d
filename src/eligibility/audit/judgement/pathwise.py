"""Policies that learn from the slope of a critic's values in the action.

Source: Mohamed et al. 2020, "Monte Carlo gradient estimation in machine learning", section 5.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from eligibility.audit.job import Job
from eligibility.audit.judgement.evidence import gather
from eligibility.audit.judgement.matching import effective_weights
from eligibility.audit.running.policy_directions import policy_gradient
from eligibility.audit.running.runner import Runner
from eligibility.audit.running.survey import RAN, Survey

_CRITIC_STEP = 1e-1  # of a critic's tensors
_OUTSIDE = 1e-3  # share of a gradient that no weights of the actions' eligibilities give


def is_pathwise(base: Survey, runner: Runner) -> bool:
    """Whether the policy's first gradient follows a critic and no reward, and weighs no action.

    So it is in SAC, TD3 and DDPG. A gradient that weighs eligibilities by values alone has lost its
    rewards; that is a fault.
    """
    policy = base.policy
    critic = sorted({tensor for tensor, _ in base.directions} - policy)
    ran = [trace for trace in base.traces if trace.outcome in RAN and trace.updates]
    evidence = gather(base)
    if not (policy and critic and ran) or evidence is None:
        return False
    if effective_weights(evidence)[1].max() < _OUTSIDE:
        return False
    trace = max(ran, key=lambda trace: len(trace.steps))  # an only reward may be replaced
    job = Job(
        trace.picked,
        base.size,
        directions=base.directions_each,
        raised=base.raised,
        rewards=tuple(step.reward for step in trace.steps if step.executed),
    )
    others = np.array(job.rewards) + np.cos(1.0 + 2.0 * np.arange(len(job.rewards)))
    moved = replace(job, tensor=critic[0], also=tuple(critic[1:]), distance=_CRITIC_STEP)
    here, rewarded, valued = (
        policy_gradient(runner.run(each), base.acting)
        for each in (job, replace(job, rewards=tuple(others.tolist())), moved)
    )
    if not here.shape == rewarded.shape == valued.shape or not here.any():
        return False
    return np.allclose(rewarded, here, rtol=1e-6) and not np.allclose(valued, here, rtol=1e-4)
