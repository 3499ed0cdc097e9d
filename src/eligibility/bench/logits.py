"""The benchmark over logits: its sizes, its figures, and how they are measured."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from eligibility.bench.contestants import contestants, left_out
from eligibility.bench.linear import LinearTable, Size, measure_linear
from eligibility.bench.machine import Machine, Roofline, describe_machine, measure_roofline
from eligibility.bench.measurement import (
    CLOCKS,
    Problem,
    Step,
    extra_peak,
    gradient_error,
    new_problem,
    read_factors,
    step_of,
    times_in_turn,
)
from eligibility.errors import InvalidValueError
from eligibility.ops.backends import cpu, selection
from eligibility.ops.policy_gradient import reinforce_gradient

COPY = "a copy"  # the yardstick: read the logits once, write as much once, into reused memory
NEW_COPY = "a copy, new memory"
KERNEL = "our kernel, reused memory"
FLOOR = "an empty node"  # an autograd Function that computes nothing, and backward() through it
NO_GRAPH = "reinforce_gradient"  # and backward() from the gradient that it found
ENTROPY_COEFS = (0.0, 0.01)


@dataclass(frozen=True)
class LogitsSize:
    """One size of problem."""

    dtype: str
    rows: int
    categories: int

    def __str__(self) -> str:
        return f"{self.dtype} {self.rows} × {self.categories}"


SIZES: tuple[LogitsSize, ...] = (
    LogitsSize("float32", 64, 4),
    LogitsSize("float32", 256, 4),
    LogitsSize("float32", 256, 64),
    LogitsSize("float32", 256, 1024),
    LogitsSize("float32", 2048, 32768),
    LogitsSize("bfloat16", 2048, 32768),
    LogitsSize("float32", 256, 151936),
)
QUICK_SIZES: tuple[LogitsSize, ...] = (
    LogitsSize("float32", 64, 4),
    LogitsSize("float32", 256, 1024),
    LogitsSize("bfloat16", 256, 1024),
)


@dataclass(frozen=True)
class Figure:
    """What one contestant needs for the loss and its gradient."""

    name: str
    milliseconds: float
    of_copy: float  # ratio to COPY, the median over rounds
    extra_peak: float | None  # the peak of the extra memory, in units of the logits' own size
    gradient_error: float | None  # relative rms against float64


@dataclass(frozen=True)
class Table:
    """All contestants at one size."""

    size: LogitsSize
    entropy_coef: float
    figures: tuple[Figure, ...]
    rounds: int  # fewer than asked where the time was up


@dataclass(frozen=True)
class Benchmark:
    """The result of one run."""

    date: str
    threads: int
    rounds: int
    clock: str
    backends: dict[str, str]
    left_out: dict[str, str]
    machine: Machine
    roofline: Roofline
    tables: tuple[Table, ...]
    linear: tuple[LinearTable, ...]


def read_sizes(text: str, dtype: str) -> tuple[LogitsSize, ...]:
    """``"256x4 64x1024"`` -> sizes."""
    wanted, fix = "rows x categories", "write it as 256x1024"
    sizes = [
        LogitsSize(dtype, *read_factors(part, 2, "`--sizes`", wanted, fix))
        for part in text.replace(",", " ").split()
    ]
    if not sizes:
        raise InvalidValueError("`--sizes`", "nothing", wanted, fix)
    return tuple(sizes)


def measure(
    sizes: Sequence[LogitsSize],
    *,
    rounds: int = 9,
    threads: int = 1,
    with_compile: bool = True,
    budget: float = math.inf,
    linear: Size | None = None,
    linear_dtype: str = "float32",
    progress: Callable[[str], None] = lambda line: None,
) -> Benchmark:
    """Measure every contestant at every size, without and with an entropy bonus.

    ``budget``: seconds for the rounds of one size; there are at least three.
    """
    for name, number in (("--rounds", rounds), ("--threads", threads)):
        if number < 1:
            raise InvalidValueError(f"`{name}`", str(number), "at least 1", "pass a larger number")
    tables, through = [], []
    clock = "process time" if threads == 1 else "wall time"  # the former is of one thread
    now = CLOCKS[clock]
    with _torch_threads(threads):
        roofline = measure_roofline(now)
        for size in sizes:
            for beta in ENTROPY_COEFS:
                bonus = f", entropy bonus {beta:g}" if beta else ""
                progress(f"{size}{bonus}")
                tables.append(_measure_table(size, beta, rounds, now, with_compile, budget))
        for beta in ENTROPY_COEFS if linear else ():
            assert linear is not None
            progress(f"through the linear layer, entropy bonus {beta:g}")
            through.append(
                measure_linear(linear, linear_dtype, beta, rounds=min(rounds, 3), clock=clock)
            )
        backends = selection.describe()
    return Benchmark(
        date=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        threads=threads,
        rounds=rounds,
        clock=clock,
        backends=backends,
        left_out=left_out(with_compile),
        machine=describe_machine(),
        roofline=roofline,
        tables=tuple(tables),
        linear=tuple(through),
    )


def _measure_table(
    size: LogitsSize,
    beta: float,
    rounds: int,
    clock: Callable[[], float],
    with_compile: bool,
    budget: float,
) -> Table:
    if with_compile:
        torch.compiler.reset()  # every size is compiled for itself
    problem = new_problem(size.rows, size.categories, getattr(torch, size.dtype), beta)
    losses = contestants(with_compile)
    steps = {name: step_of(loss, problem) for name, loss in losses.items()}
    errors, peaks = {}, {}
    for name, loss in losses.items():
        peaks[name] = extra_peak(loss, problem) / problem.logits.detach().nbytes
        errors[name] = gradient_error(problem)
    problem.logits.grad = None
    steps |= _yardsticks(problem)
    times = times_in_turn(steps, rounds, clock, budget)
    figures = (
        Figure(
            name,
            times.median(name) * 1e3,
            times.ratio(name, COPY),
            peaks.get(name),
            errors.get(name),
        )
        for name in steps
    )
    return Table(size, beta, tuple(figures), times.rounds)


def _yardsticks(problem: Problem) -> dict[str, Step]:
    logits = problem.logits.detach()
    memory = torch.zeros_like(logits)
    steps: dict[str, Step] = {
        NO_GRAPH: lambda: _backward_from_gradient(problem),
        FLOOR: step_of(lambda z, *_: _Empty.apply(z), problem),  # type: ignore[no-untyped-call]  # torch
        COPY: lambda: memory.copy_(logits),
        NEW_COPY: lambda: logits.clone(),
    }
    if cpu.serves(logits):
        bonus = None
        if problem.entropy_coef:
            bonus = torch.full_like(problem.advantage, problem.entropy_coef)
        steps[KERNEL] = lambda: cpu.row_objective(
            logits, problem.action, None, problem.advantage, bonus, out=memory
        )
    return steps


def _backward_from_gradient(problem: Problem) -> None:
    logits = problem.logits
    logits.grad = None
    _, gradient = reinforce_gradient(
        logits, problem.action, problem.advantage, entropy_coef=problem.entropy_coef
    )
    logits.backward(gradient)  # type: ignore[no-untyped-call]  # torch


class _Empty(torch.autograd.Function):
    """The least that a loss called from Python costs: two tensors, a node, a walk over it."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor) -> torch.Tensor:
        ctx.gradient = torch.empty_like(logits)
        return torch.empty(())

    @staticmethod
    def backward(ctx: Any, _: torch.Tensor) -> torch.Tensor:
        gradient: torch.Tensor
        gradient, ctx.gradient = ctx.gradient, None
        return gradient


@contextmanager
def _torch_threads(threads: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
