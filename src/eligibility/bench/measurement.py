"""Time, memory and error of one step: a loss over logits and its gradient."""

from __future__ import annotations

import gc
import itertools
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.profiler import profile

from eligibility.bench.contestants import Loss
from eligibility.errors import InvalidValueError
from eligibility.ops import memory
from eligibility.ops.backends import plain

Step = Callable[[], object]
ROUND_SECONDS = 2e-3  # quick steps are repeated for this long, so that the clock does not show
LEAST_ROUNDS = 3
_CHECKED_ROWS = 16
_PROCESS = Path("/proc/self")
# Process time is not lengthened by others on the machine, but counts all threads together.
CLOCKS = {"process time": time.process_time, "wall time": time.perf_counter}


@dataclass(frozen=True)
class Problem:
    """What every contestant is given."""

    logits: Tensor  # [N, V], standard normal times 3, a leaf that requires gradients
    action: Tensor  # [N]
    advantage: Tensor  # [N]
    entropy_coef: float


def new_problem(rows: int, categories: int, dtype: torch.dtype, entropy_coef: float) -> Problem:
    """The same numbers on every call."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(rows, categories, generator=generator).mul_(3).to(dtype)
    return Problem(
        logits.requires_grad_(),
        torch.randint(categories, (rows,), generator=generator),
        torch.randn(rows, generator=generator),
        entropy_coef,
    )


def read_factors(text: str, count: int, option: str, wanted: str, fix: str) -> list[int]:
    """``"256x1024"`` -> its ``count`` numbers."""
    numbers = text.lower().replace("×", "x").split("x")
    if len(numbers) != count or not all(n.isdecimal() and int(n) > 0 for n in numbers):
        raise InvalidValueError(option, repr(text), wanted, fix)
    return [int(number) for number in numbers]


def step_of(loss: Loss, problem: Problem) -> Step:
    """Forward and backward from an empty gradient."""

    def step() -> None:
        problem.logits.grad = None
        value = loss(problem.logits, problem.action, problem.advantage, problem.entropy_coef)
        value.backward()  # type: ignore[no-untyped-call]  # torch

    return step


def times_in_turn(
    steps: Mapping[str, Step], rounds: int, clock: Callable[[], float], budget: float = math.inf
) -> Times:
    """Seconds of every step in every round; they take turns, so that a disturbance meets all.

    After ``budget`` seconds on the wall no further round begins, once there are `LEAST_ROUNDS`.
    """
    end = time.perf_counter() + budget
    repeats = {}
    for name, step in steps.items():
        step()  # what is loaded or compiled at the first call
        once = _seconds(step, 1, clock)
        repeats[name] = max(1, min(1000, int(ROUND_SECONDS / max(once, 1e-6))))
    found: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(rounds):
        if number >= LEAST_ROUNDS and time.perf_counter() > end:
            break
        for name, step in steps.items():
            found[name].append(_seconds(step, repeats[name], clock))
    return Times(found)


def _seconds(step: Step, repeats: int, clock: Callable[[], float]) -> float:
    start = clock()
    for _ in range(repeats):
        step()
    return (clock() - start) / repeats


@dataclass(frozen=True)
class Times:
    """Name -> seconds in every round."""

    seconds: dict[str, list[float]]

    @property
    def rounds(self) -> int:
        """How many there were."""
        return min(map(len, self.seconds.values()))

    def median(self, name: str) -> float:
        """Median seconds of one step."""
        return statistics.median(self.seconds[name])

    def ratio(self, name: str, base: str) -> float:
        """Median over the rounds of the ratio to ``base`` in the same round."""
        pairs = zip(self.seconds[name], self.seconds[base], strict=True)
        return statistics.median(a / b for a, b in pairs)


def extra_peak(loss: Loss, problem: Problem) -> int:
    """The most bytes that a step holds beyond those before it; the gradient is among them.

    Large tensors have separate mappings, so the resident size measures them; for small ones,
    which share pages with others, torch's allocator does.
    """
    step = step_of(loss, problem)
    step()
    problem.logits.grad = None
    if problem.logits.detach().nbytes >= memory.LARGE and _PROCESS.exists():
        return resident_growth(step)
    return _allocated_growth(step)


def resident_growth(step: Step) -> int:
    """How many bytes the peak resident size lies above what there was before the step."""
    gc.collect()
    memory.release_memory()
    before = _resident("VmRSS")
    (_PROCESS / "clear_refs").write_text("5", encoding="ascii")  # forget the peak so far
    step()
    return _resident("VmHWM") - before


def _resident(field: str) -> int:
    lines = (_PROCESS / "status").read_text(encoding="utf-8").splitlines()
    kilobytes = dict(line.split(":", 1) for line in lines)[field]
    return int(kilobytes.split()[0]) * 1024


def _allocated_growth(step: Step) -> int:
    with _silent_native_code(), profile(profile_memory=True) as recording:
        step()
    assert recording.profiler is not None
    events = recording.profiler.kineto_results.events()
    changes = [event for event in events if event.name() == "[memory]"]
    changes.sort(key=lambda event: event.start_ns())
    return max(itertools.accumulate(event.nbytes() for event in changes), default=0)


@contextmanager
def _silent_native_code() -> Iterator[None]:
    """torch's profiler writes about itself to the descriptor of standard error."""
    sys.stderr.flush()
    kept = os.dup(2)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def gradient_error(problem: Problem) -> float:
    """Relative rms error of the gradient that a step left, against float64, on the first rows."""
    assert problem.logits.grad is not None  # a step was made
    part = slice(0, _CHECKED_ROWS)
    factor = -1.0 / len(problem.action)
    exact = plain.gradient(
        problem.logits.detach()[part].double(),
        problem.action[part],
        None,
        factor * problem.advantage[part].double(),
        torch.full_like(problem.advantage[part].double(), factor * problem.entropy_coef),
    )
    found = problem.logits.grad[part].double()
    return float((found - exact).norm() / exact.norm())
