"""The true gradient by a second route: central differences of the enumerated expected return."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import torch
from torch import nn
from torch.distributions import Bernoulli, Categorical, Independent, Normal

from eligibility.audit.choices import paths_after
from eligibility.audit.job import SIZES, Job
from eligibility.audit.judgement.evidence import gather
from eligibility.audit.judgement.exact import fitted_bias, policy_gradient, tells_discount
from eligibility.audit.judgement.timeline import timeline
from eligibility.audit.running.runner import CallableRunner
from eligibility.audit.running.survey import survey
from eligibility.audit.trace import Trace

GAMMA, STEP = 0.8, 1e-4


def by_gumbel(z: torch.Tensor) -> torch.Tensor:
    return (z - torch.log(-torch.log(torch.rand_like(z)))).argmax()


DRAWS: dict[str, tuple[str, int, Callable[[torch.Tensor], torch.Tensor]]] = {
    "categorical": ("CartPole-v1", 2, lambda z: Categorical(logits=z).sample()),
    "bernoulli": ("CartPole-v1", 1, lambda z: Bernoulli(logits=z).sample().long()[0]),
    "gumbel": ("CartPole-v1", 2, by_gumbel),
    "normal": (
        "MountainCarContinuous-v0",
        2,
        lambda z: Independent(Normal(z[:1], z[1:].exp()), 1).sample(),
    ),
}


def program(environment: str, outputs: int, draw: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """One episode and an update of any kind: only the choices and the rewards matter here."""
    env = gymnasium.make(environment)
    net = nn.Linear(env.observation_space.shape[0], outputs)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    while True:
        observation, _ = env.reset()
        done = False
        while not done:
            action = draw(net(torch.as_tensor(observation))).detach().numpy()
            observation, _, terminated, truncated, _ = env.step(action)
            done = terminated or truncated
        net(torch.as_tensor(observation)).sum().backward()
        optimizer.step()


def expected_return(runner: CallableRunner, job: Job) -> float:
    """J = Σ over paths of p · Σ_t γ^t r_t, visited one by one."""
    total, prescribed = 0.0, ()
    while prescribed is not None:
        trace: Trace = runner.run(replace(job, prescribed=prescribed))
        total += trace.probability * sum(GAMMA**step.time * step.reward for step in trace.steps)
        prescribed = next(paths_after(trace), None)
    return total


@pytest.mark.parametrize("name", DRAWS)
def test_the_policy_gradient_is_the_slope_of_the_expected_return(name: str) -> None:
    runner = CallableRunner(lambda: program(*DRAWS[name]))
    observed = survey(runner, 40, 1, lambda what, done, expected: None)
    assert observed.exhaustive
    evidence = gather(observed)
    assert evidence is not None
    gradient = policy_gradient(evidence, timeline(evidence), GAMMA)
    assert np.abs(gradient).max() > 1e-3
    assert observed.size in SIZES
    for column, (tensor, direction) in list(enumerate(observed.directions))[::2]:
        job = Job((), observed.size, tensor=tensor, direction=direction)
        up, down = (
            expected_return(runner, replace(job, distance=sign * STEP)) for sign in (1.0, -1.0)
        )
        assert gradient[column] == pytest.approx((up - down) / (2 * STEP), abs=1e-6)


def test_a_discount_is_fitted_only_where_it_cannot_fit_everything() -> None:
    """Of two coordinates γ and the scale make up both, whatever the gradient."""
    runner = CallableRunner(lambda: program(*DRAWS["categorical"]))
    evidence = gather(survey(runner, 40, 1, lambda what, done, expected: None))
    assert evidence is not None
    assert tells_discount(evidence)
    line = timeline(evidence)
    ends = [policy_gradient(evidence, line, discount)[:2] for discount in (0.3, 0.9)]
    between = ends[0] + 0.4 * ends[1]  # the gradient of no discount
    few = replace(
        evidence,
        eligibility=evidence.eligibility[..., :2],
        ascent=np.tile(between, (evidence.paths, 1)),
    )
    assert fitted_bias(few, line).residual < 1e-9
    assert not tells_discount(few)
