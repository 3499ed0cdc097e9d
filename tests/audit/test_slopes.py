"""The slopes of a program's probabilities, by two routes: its own graph, and differences."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import gymnasium
import numpy as np
import pytest
import torch

from eligibility.audit.job import Job
from eligibility.audit.precision import UNIT_DOUBLE, tolerance
from eligibility.audit.running import survey as surveys
from eligibility.audit.running.runner import CallableRunner
from eligibility.audit.running.survey import Survey, survey
from eligibility.audit.trace import Trace
from tests.audit.zoo.inspection import running
from tests.audit.zoo.styles import STYLES
from tests.audit.zoo.variants import variant

STYLE = {style.name: style for style in STYLES}


@contextmanager
def observed(style: str) -> Iterator[tuple[Survey, int]]:
    """What is seen of a style's clean program, and in how many runs."""
    with surveyed(style) as (found, jobs):
        yield found, len(jobs)


@contextmanager
def surveyed(style: str) -> Iterator[tuple[Survey, list[Job]]]:
    """What is seen of a style's clean program, and what was run for it."""
    program = variant(STYLE[style], "as-written", "exact")
    assert program is not None
    jobs: list[Job] = []
    with running(program) as (runner, _):

        class Counting(CallableRunner):
            def __init__(self) -> None:
                pass

            def run(self, job: Job) -> Trace:
                jobs.append(job)
                return runner.run(job)

        found = survey(Counting(), 200, 20, lambda what, done, expected: None)
    yield found, jobs


# sampled with a gradient, and without; masked; normal numbers, squashed; two actors
@pytest.mark.parametrize("style", ["flat", "sb3", "masked", "gaussian", "squashed", "vector"])
def test_the_graph_and_differences_give_the_same_slopes(style: str) -> None:
    with observed(style) as (graph, few):
        pass
    with (
        patch.object(surveys, "from_graphs", lambda *arguments: {}),
        observed(style) as (differences, many),
    ):
        pass
    assert graph.slopes
    assert differences.slopes
    assert graph.slopes.keys() == differences.slopes.keys()
    for key, slope in graph.slopes.items():
        for name in ("log_probs", "loc", "scale"):
            pair = getattr(slope, name), getattr(differences.slopes[key], name)
            np.testing.assert_allclose(*pair, rtol=0.0, atol=tolerance(UNIT_DOUBLE))
    assert few < many


def test_a_network_that_is_made_after_a_first_reset_has_its_graph() -> None:
    """Its layers write their first numbers without a gradient, while the program runs."""

    def program() -> None:
        env = gymnasium.make("CartPole-v1")
        env.reset(seed=1)
        policy = torch.nn.Linear(4, 2)
        optimizer = torch.optim.Adam(policy.parameters())
        while True:
            state, over, scores, total = env.reset()[0], False, [], 0.0
            while not over:
                with torch.no_grad():
                    dist = torch.distributions.Categorical(logits=policy(torch.tensor(state)))
                action = dist.sample()
                scores.append((torch.tensor(state), action))
                state, reward, terminated, truncated, _ = env.step(action.item())
                total, over = total + float(reward), terminated or truncated
            states, actions = map(torch.stack, zip(*scores, strict=True))
            log_probs = torch.log_softmax(policy(states), dim=1)[range(len(scores)), actions]
            optimizer.zero_grad()
            (-total * log_probs.sum()).backward()
            optimizer.step()

    jobs: list[Job] = []

    class Counting(CallableRunner):
        def run(self, job: Job) -> Trace:
            jobs.append(job)
            return super().run(job)

    found = survey(Counting(program), 200, 20, lambda what, done, expected: None)
    assert found.slopes
    assert not [job for job in jobs if job.tensor is not None]  # by differences


def test_a_program_of_few_paths_is_run_once_for_each() -> None:
    with surveyed("flat") as (found, jobs):
        plain = [job for job in jobs if not job.slopes and not job.everywhere]
        assert found.exhaustive
        assert len(plain) == len(found.traces)
        assert all(job.seed is None for job in jobs)


@pytest.mark.parametrize(("style", "shared"), [("two_optimizers", False), ("shared", True)])
def test_the_policys_tensors_are_moved_one_by_one_only_where_the_critic_follows_them(
    style: str, shared: bool
) -> None:
    with surveyed(style) as (found, jobs):
        moved = [job for job in jobs if job.tensor is not None]
        assert bool(found.shared) == shared
        assert moved[0].also
        each = 1 + len(moved[0].also) + 1 if shared else 1
        assert len(moved) == each * found.directions_each


def test_a_graph_that_is_not_the_policy_is_not_believed() -> None:
    """A straight-through gradient: the graph says something else than the probabilities do."""

    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, logits: torch.Tensor) -> torch.Tensor:
            return logits.clone()

        @staticmethod
        def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:
            return 2.0 * gradient

    stock = torch.distributions.Categorical.__init__

    def doubled(
        self: object, probs: object = None, logits: object = None, **options: object
    ) -> None:
        stock(self, probs, Twice.apply(logits), **options)

    with (
        patch.object(torch.distributions.Categorical, "__init__", doubled),
        observed("flat") as (believed, _),
    ):
        pass
    with observed("flat") as (plain, _):
        pass
    assert believed.slopes
    assert plain.slopes
    for key, slope in believed.slopes.items():
        np.testing.assert_allclose(
            slope.log_probs, plain.slopes[key].log_probs, rtol=0.0, atol=tolerance(UNIT_DOUBLE)
        )
