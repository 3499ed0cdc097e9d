"""The measuring instruments, on things whose time, memory and error are known."""

from __future__ import annotations

import itertools
import time

import pytest
import torch
from torch import Tensor

from eligibility.bench.contestants import contestants, left_out
from eligibility.bench.measurement import (
    extra_peak,
    gradient_error,
    new_problem,
    step_of,
    times_in_turn,
)


@pytest.mark.parametrize("entropy_coef", [0.0, 0.3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", list(contestants(with_compile=False)))
def test_contestants_compute_the_same_gradient(
    name: str, dtype: torch.dtype, entropy_coef: float
) -> None:
    problem = new_problem(20, 30, dtype, entropy_coef)
    step_of(contestants(with_compile=False)[name], problem)()
    # float32: a few roundings. bfloat16: Categorical rounds a whole log-probability to 2^-8.
    assert gradient_error(problem) < (1e-6 if dtype == torch.float32 else 2e-2)


def test_gradient_error_is_the_relative_size_of_an_error() -> None:
    problem = new_problem(4, 6, torch.float32, 0.0)
    step_of(contestants(with_compile=False)["eligibility"], problem)()
    assert problem.logits.grad is not None
    problem.logits.grad *= 1.25
    assert gradient_error(problem) == pytest.approx(0.25, rel=1e-5)


def test_extra_peak_counts_what_is_held_at_once() -> None:
    problem = new_problem(64, 1000, torch.float32, 0.0)
    size = problem.logits.detach().nbytes

    def two_at_once(z: Tensor, action: Tensor, advantage: Tensor, beta: float) -> Tensor:
        scratch = [torch.ones(64, 1000) for _ in range(2)]
        del scratch
        return torch.zeros((), requires_grad=True) + z.detach()[0, 0]

    small = 4096  # scalars
    assert 2 * size <= extra_peak(two_at_once, problem) <= 2 * size + small


def test_contestants_take_turns_and_the_first_call_is_not_timed() -> None:
    calls = []
    ticks = itertools.count()
    times = times_in_turn(
        {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")},
        rounds=3,
        clock=lambda: next(ticks),
    )
    assert calls == ["a", "a", "b", "b", "a", "b", "a", "b", "a", "b"]
    assert times.seconds == {"a": [1.0] * 3, "b": [1.0] * 3}
    assert times.median("a") == times.ratio("a", "b") == 1.0


def test_after_the_budget_there_are_three_rounds_and_no_more() -> None:
    steps = {"a": lambda: None}
    assert times_in_turn(steps, 7, time.perf_counter, budget=-1.0).rounds == 3
    assert times_in_turn(steps, 2, time.perf_counter, budget=-1.0).rounds == 2
    assert times_in_turn(steps, 5, time.perf_counter).rounds == 5


def test_what_is_left_out_has_a_reason() -> None:
    everyone = set(contestants(with_compile=False)) | set(left_out(with_compile=False))
    assert {"TRL", "torch.compile", "Liger Kernel", "cut-cross-entropy", "Categorical"} <= everyone
    assert not set(contestants(with_compile=False)) & set(left_out(with_compile=False))


@pytest.mark.parametrize(("name", "most"), [("eligibility", 1.1), ("Categorical", 7.0)])
def test_extra_peak_of_large_problems_is_what_is_resident(name: str, most: float) -> None:
    problem = new_problem(64, 1 << 17, torch.float32, 0.0)
    size = problem.logits.detach().nbytes
    peak = extra_peak(contestants(with_compile=False)[name], problem) / size
    assert 0.95 <= peak <= most  # pages are counted, so it is a little less or more than whole
