"""The benchmark through the linear layer: hidden states and unembedding to loss and gradients.

The yardstick is the three matrix products that no method can avoid: logits, the gradient of the
hidden states, the gradient of the weight. Every contestant computes −mean(A log π(token)), with an
entropy bonus β minus β times the mean entropy, and both gradients. Each has a separate process,
whose growth of the peak resident size in the first step is its memory, the two gradients included.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

import torch
from torch import Tensor

from eligibility.bench.linear_contestants import left_out, methods, plain
from eligibility.bench.linear_process import (
    PRODUCTS,
    Size,
    Step,
    StepHere,
    StepProcess,
    new_inputs,
    step,
)
from eligibility.bench.measurement import read_factors

# A method that takes more than this many times the bare products, and seconds, is measured once.
_SLOW, _SLOW_SECONDS = 3.0, 5.0
# Below this number of logits a process for each method costs more than all its steps, and the
# resident size of a process says nothing: then all are measured here, without their memory.
_FEW_LOGITS = 1 << 20


@dataclass(frozen=True)
class LinearFigure:
    """One method: what it costs, and its error."""

    method: str
    seconds: float
    ratio: float  # to the three bare products, in the same rounds
    extra_peak_mib: float | None
    gradient_error: float  # of the hidden states, relative rms, against float32 inputs
    rounds: int


@dataclass(frozen=True)
class LinearTable:
    """All methods through the linear layer at one size."""

    size: Size
    dtype: str
    entropy_coef: float
    figures: tuple[LinearFigure, ...]
    left_out: dict[str, str]


def read_size(text: str) -> Size:
    """``"2048x32768x1024"`` -> size."""
    wanted = "tokens x vocabulary x features"
    return Size(*read_factors(text, 3, "`--linear`", wanted, "write 512x8192x256"))


def measure_linear(
    size: Size,
    dtype: str,
    entropy_coef: float,
    *,
    rounds: int,
    clock: str = "process time",
    only: str = "",
    progress: Callable[[str], None] = lambda line: None,
) -> LinearTable:
    """Every method whose name contains ``only``, taking turns with the bare products."""
    has_processes = size.tokens * size.vocabulary >= _FEW_LOGITS
    names = [name for name in methods(entropy_coef) if only in name]
    missing, truth = left_out(entropy_coef), _truth(size, dtype, entropy_coef)
    steps: dict[str, list[Step]] = {name: [] for name in (PRODUCTS, *names)}
    base: dict[str, list[float]] = {name: [] for name in steps}
    errors = {PRODUCTS: 0.0}
    with ExitStack() as stack:
        processes: dict[str, StepProcess | StepHere] = {}
        for name in steps:
            setting = (name, size, dtype, entropy_coef, clock)
            process = StepProcess(*setting) if has_processes else StepHere(*setting)
            stack.callback(process.close)
            processes[name] = process
        for round_number in range(rounds):
            products = processes[PRODUCTS].step()
            steps[PRODUCTS].append(products)
            base[PRODUCTS].append(products.seconds)
            for name in names:
                if name in missing or _is_slow(steps[name], base[name]):
                    continue
                progress(f"round {round_number + 1} of {rounds}: {name}")
                try:
                    steps[name].append(processes[name].step())
                except RuntimeError as error:
                    missing[name] = str(error)
                    continue
                base[name].append(products.seconds)
                if round_number == 0:
                    found = processes[name].gradient()
                    errors[name] = float((found - truth).norm() / truth.norm())
    figures = [
        _figure(name, steps[name], base[name], error, has_processes)
        for name, error in errors.items()
    ]
    return LinearTable(size, dtype, entropy_coef, tuple(figures), missing)


def _figure(
    name: str, steps: list[Step], base: list[float], error: float, with_memory: bool
) -> LinearFigure:
    return LinearFigure(
        name,
        statistics.median(step.seconds for step in steps),
        statistics.median(step.seconds / b for step, b in zip(steps, base, strict=True)),
        steps[0].extra_peak_mib if with_memory and name != PRODUCTS else None,
        error,
        len(steps),
    )


def _is_slow(steps: list[Step], base: list[float]) -> bool:
    return bool(steps) and steps[0].seconds > max(_SLOW_SECONDS, _SLOW * base[0])


def _truth(size: Size, dtype: str, beta: float) -> Tensor:
    """The gradient of the hidden states from the same numbers in float32."""
    given = new_inputs(size, getattr(torch, dtype))
    hidden, weight = (x.detach().float().requires_grad_() for x in given[:2])
    step(plain, (hidden, weight, *given[2:]), beta)
    assert hidden.grad is not None
    return hidden.grad
