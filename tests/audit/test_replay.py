"""A path can be replayed with other rewards, and nothing else of it changes."""

from __future__ import annotations

import numpy as np

from eligibility.audit.job import SIZES, Job
from tests.audit.zoo.inspection import running
from tests.audit.zoo.variants import clean_programs


def test_the_gradient_is_linear_in_the_rewards_of_a_replayed_path() -> None:
    program = next(p for p in clean_programs() if p.style.name == "flat")
    with running(program) as (runner, _):
        first = runner.run(Job((), SIZES[0]))
        path = Job(tuple(draw.picked for draw in first.draws), SIZES[0])
        gradients = []
        for rewards in ((0.0, 0.0, 0.0), (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (1.0, 1.0, 0.0)):
            trace = runner.run(Job(path.prescribed, SIZES[0], rewards=rewards))
            assert [s.state for s in trace.steps] == [s.state for s in first.steps]
            assert tuple(s.reward for s in trace.steps) == rewards[: len(trace.steps)]
            gradients.append(np.concatenate([row or () for row in trace.updates[0].ascent]))
    none, one, two, both = gradients
    assert np.allclose(one + two, both + none, rtol=1e-9, atol=1e-12)
    assert not np.allclose(one, both)
