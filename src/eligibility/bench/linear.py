"""The benchmark through the linear layer: hidden states and unembedding to loss and gradients.

The yardstick is the three matrix products that no method can avoid: logits, the gradient of the
hidden states, the gradient of the weight. Every contestant computes −mean(A log π(token)), with an
entropy bonus β minus β times the mean entropy, and both gradients. Each has a separate process,
whose growth of the peak resident size in the first step is its memory, the two gradients included.
"""

from __future__ import annotations

import multiprocessing
import statistics
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from eligibility.bench.linear_contestants import COMPILED, METHODS, Method, left_out, methods, plain
from eligibility.bench.measurement import CLOCKS, read_factors, resident_growth

Given = tuple[Tensor, Tensor, Tensor, Tensor]  # hidden [N, D], weight [V, D], token, advantage [N]
PRODUCTS = "three bare products"
_PEAK = Path("/proc/self/clear_refs")


@dataclass(frozen=True)
class Size:
    """N tokens, a vocabulary of V, D features."""

    tokens: int
    vocabulary: int
    features: int

    def __str__(self) -> str:
        return f"{self.tokens} × {self.vocabulary} × {self.features}"


@dataclass(frozen=True)
class Step:
    """Forward and backward, once."""

    seconds: float
    extra_peak_mib: float | None  # growth of the resident size; None where the system is silent


class StepProcess:
    """A method with its own inputs in a separate process; close it after use."""

    def __init__(self, name: str, size: Size, dtype: str, entropy_coef: float, clock: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._end, theirs = context.Pipe()
        arguments = (theirs, name, size, dtype, entropy_coef, clock, torch.get_num_threads())
        self._process = context.Process(target=_serve, args=arguments, daemon=True)
        self._process.start()
        theirs.close()

    def close(self) -> None:
        """End it."""
        self._end.close()  # which ends its loop
        self._process.join(30)
        if self._process.is_alive():
            self._process.kill()

    def step(self) -> Step:
        """Take a step now."""
        found: Step = self._ask("step")
        return found

    def gradient(self) -> Tensor:
        """That of the hidden states in float32, as the last step left it, ``[N, D]``."""
        return torch.from_numpy(self._ask("gradient"))

    def _ask(self, what: str) -> Any:
        self._end.send(what)
        found = self._end.recv()
        if isinstance(found, Exception):
            raise found
        return found


def new_inputs(size: Size, dtype: torch.dtype) -> Given:
    """Hidden states of unit variance and logits of unit variance."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(size.tokens, size.features, generator=generator).to(dtype)
    weight = torch.randn(size.vocabulary, size.features, generator=generator)
    weight = (weight / size.features**0.5).to(dtype)
    token = torch.randint(size.vocabulary, (size.tokens,), generator=generator)
    advantage = torch.randn(size.tokens, generator=generator)
    return hidden.requires_grad_(), weight.requires_grad_(), token, advantage


def step(method: Method, given: Given, beta: float) -> None:
    """Forward and backward from empty gradients."""
    given[0].grad = given[1].grad = None
    method(*given, beta).backward()  # type: ignore[no-untyped-call]  # torch


def three_products(hidden: Tensor, weight: Tensor) -> None:
    """What cannot be avoided; the logits stand in for their gradient."""
    with torch.no_grad():
        z = hidden @ weight.t()
        _ = z @ weight
        _ = z.t() @ hidden


class StepHere:
    """The same in this process: as fast, but its figures of memory mean little."""

    def __init__(self, name: str, size: Size, dtype: str, entropy_coef: float, clock: str) -> None:
        self._name, self._beta, self._now = name, entropy_coef, CLOCKS[clock]
        self._given = new_inputs(size, getattr(torch, dtype))
        self._warm_up()

    def close(self) -> None:
        """Forget the gradients."""
        self._given[0].grad = self._given[1].grad = None

    def step(self) -> Step:
        """Take a step now."""
        self._given[0].grad = self._given[1].grad = None
        taken: list[float] = []

        def once() -> None:
            start = self._now()
            if self._name == PRODUCTS:
                three_products(*self._given[:2])
            else:
                step(METHODS[self._name], self._given, self._beta)
            taken.append(self._now() - start)

        if not _PEAK.exists():
            once()
            return Step(taken[0], None)
        growth = resident_growth(once) / 2**20
        return Step(taken[0], growth)

    def gradient(self) -> Tensor:
        """That of the hidden states in float32, as the last step left it, ``[N, D]``."""
        assert self._given[0].grad is not None
        return self._given[0].grad.float()

    def _warm_up(self) -> None:
        """At full size what is compiled for a size; else with a few rows, which cost nothing."""
        if self._name == PRODUCTS:
            return
        method, given = METHODS[self._name], self._given
        if self._name in COMPILED:
            step(method, given, self._beta)
            return
        small = [x[:16].detach().requires_grad_(x.is_floating_point()) for x in given]
        rows = len(small[1])
        step(method, (small[0], small[1], small[2] % rows, small[3].detach()), self._beta)


def _serve(end: Connection, *arguments: Any) -> None:
    """Answer until the parent closes the connection; an error of a method is sent as the answer."""
    *setting, threads = arguments
    torch.set_num_threads(threads)
    here: StepHere | None = None
    with suppress(EOFError):  # the parent has closed it
        while asked := end.recv():
            try:
                here = here or StepHere(*setting)
                answer: Any = here.step() if asked == "step" else here.gradient().numpy()
            except Exception as error:  # sent to the parent, which raises it
                answer = RuntimeError(f"{type(error).__name__}: {str(error).splitlines()[0]}")
            end.send(answer)


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
