"""The slopes of a program's probabilities, by two routes: its own graph, and differences."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

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
    program = variant(STYLE[style], "as-written", "exact")
    assert program is not None
    runs = 0
    with running(program) as (runner, _):

        class Counting(CallableRunner):
            def __init__(self) -> None:
                pass

            def run(self, job: Job) -> Trace:
                nonlocal runs
                runs += 1
                return runner.run(job)

        found = survey(Counting(), 200, 20, lambda what, done, expected: None)
    yield found, runs


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
