"""The Triton kernels on a GPU: over logits against a copy, and through the linear layer.

    python -m benchmarks.triton_kernels --device cuda --out benchmarks/results/triton.json

Under five minutes on an H100 or H200, most of it torch.compile. Peers that are installed take part
(pip install liger-kernel cut-cross-entropy). `--device cpu --small` runs everything once under
Triton's interpreter (set TRITON_INTERPRET=1): a check of this script, no measurement.

The roofline of the linear layer is arithmetic: 6 N V D operations at the dense bfloat16 rate of the
device. For N = 8192, D = 4096, V = 151936 they are 3.06e13, which takes an H200 at 989.5 TFLOP/s
30.9 ms; the kernel's own pass over the logits adds 2 to 3 transfers of 2 N V bytes, 1.0 to 1.6 ms
at 4.8 TB/s. This is a calculation, not a measurement.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from eligibility.bench import contestants, linear
from eligibility.bench.machine import describe_machine
from eligibility.files import write_atomically
from eligibility.ops.backends import cpu, selection, triton

LOGITS = [(256, 4), (4096, 1024), (2048, 32768), (2048, 50257), (4096, 151936)]
LINEAR = [(2048, 32768, 1024), (8192, 151936, 4096)]
SMALL_LOGITS, SMALL_LINEAR = [(4, 7)], [(5, 11, 4)]
TERAFLOPS = 989.5  # dense bfloat16, H100 SXM and H200, NVIDIA's data sheet
ROUNDS = 5
Step = Callable[[], object]


def milliseconds(steps: dict[str, Step], device: str, rounds: int) -> dict[str, float | str]:
    """The median of each, taken in turn; the reason where one cannot run."""
    found: dict[str, float | str] = {}
    usable = {}
    for name, step in steps.items():
        try:
            step()
            step()
        except Exception as error:  # a peer may fail in any way at all
            found[name] = f"{type(error).__name__}: {str(error).splitlines()[0][:120]}"
            continue
        usable[name] = step
    seconds: dict[str, list[float]] = {name: [] for name in usable}
    for _ in range(rounds):
        for name, step in usable.items():
            seconds[name].append(_seconds(step, device))
    return found | {name: 1e3 * statistics.median(times) for name, times in seconds.items()}


def _seconds(step: Step, device: str) -> float:
    if device == "cpu":
        start = time.perf_counter()
        step()
        return time.perf_counter() - start
    repeats = 3
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(repeats):
        step()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) / repeats / 1e3


def peak(step: Step, device: str) -> float | None:
    """MiB at the most beyond what was there before."""
    if device == "cpu":
        return None
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step()
    return float(torch.cuda.max_memory_allocated() - before) / 2**20


def over_logits(
    rows: int, categories: int, beta: float, device: str, rounds: int
) -> dict[str, Any]:
    """Loss and gradient of everyone, against a copy of the logits."""
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(rows, categories, generator=generator)
    logits = logits.to(device, torch.bfloat16).requires_grad_()
    action = torch.randint(categories, (rows,), generator=generator).to(device)
    advantage = torch.randn(rows, generator=generator).to(device)
    memory = torch.empty_like(logits)

    def step_of(loss: contestants.Loss) -> Step:
        def step() -> None:
            logits.grad = None
            loss(logits, action, advantage, beta).backward()

        return step

    losses = contestants.contestants(with_compile=device == "cuda")
    steps: dict[str, Step] = {name: step_of(loss) for name, loss in losses.items()}
    steps["a copy"] = lambda: memory.copy_(logits.detach())
    times = milliseconds(steps, device, rounds)
    peaks = {name: peak(step, device) for name, step in steps.items() if name in times}
    return {"size": [rows, categories], "beta": beta, "milliseconds": times, "peak_mib": peaks}


def through_linear(
    tokens: int, vocabulary: int, features: int, beta: float, device: str, rounds: int
) -> dict[str, Any]:
    """Loss and both gradients of everyone, against three products and the roofline."""
    generator = torch.Generator().manual_seed(0)
    h = torch.randn(tokens, features, generator=generator).to(device, torch.bfloat16)
    w = torch.randn(vocabulary, features, generator=generator).to(device, torch.bfloat16)
    w = (w / features**0.5).requires_grad_()
    h.requires_grad_()
    token = torch.randint(vocabulary, (tokens,), generator=generator).to(device)
    advantage = torch.randn(tokens, generator=generator).to(device)

    def step_of(method: linear.Method) -> Step:
        def step() -> None:
            h.grad = w.grad = None
            method(h, w, token, advantage, beta).backward()

        return step

    steps: dict[str, Step] = {n: step_of(m) for n, m in linear.methods(beta).items()}
    steps[linear.PRODUCTS] = lambda: _products(h.detach(), w.detach())
    times = milliseconds(steps, device, rounds)
    peaks = {name: peak(step, device) for name, step in steps.items() if name in times}
    roofline = 6e-9 * tokens * vocabulary * features / TERAFLOPS
    return {
        "size": [tokens, vocabulary, features], "beta": beta, "roofline_ms": roofline,
        "milliseconds": times, "peak_mib": peaks,
    }  # fmt: skip


def _products(h: Tensor, w: Tensor) -> None:
    logits = h @ w.t()
    logits @ w
    logits.t() @ h


def show(table: dict[str, Any]) -> None:
    """One table on the terminal."""
    base = table["milliseconds"].get("a copy", table["milliseconds"].get(linear.PRODUCTS))
    limit = f", roofline {table['roofline_ms']:.3g} ms" if "roofline_ms" in table else ""
    print(f"\n{' × '.join(map(str, table['size']))}, β = {table['beta']}{limit}")
    for name, time_ in table["milliseconds"].items():
        if isinstance(time_, str):
            print(f"  {name:34} failed: {time_}")
        else:
            memory = table["peak_mib"].get(name)
            beside = f"{time_ / base:8.2f}" if isinstance(base, float) else ""
            print(
                f"  {name:34}{time_:10.3f} ms {beside}" + (f"{memory:9.0f} MiB" if memory else "")
            )


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--small", action="store_true", help="one tiny size of each kind, once")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--out", type=Path, help="write the tables as JSON to this file")
    arguments = parser.parse_args()
    if arguments.device == "cuda" and not torch.cuda.is_available():
        parser.error("no CUDA device here; --device cpu --small checks the script")
    rounds = 1 if arguments.small else arguments.rounds
    tables = []
    with ExitStack() as stack:
        if arguments.device == "cpu":
            stack.enter_context(triton.interpreted())
            stack.enter_context(mock.patch.object(cpu, "serves", return_value=False))
        for beta in (0.0, 0.01):
            for size in SMALL_LOGITS if arguments.small else LOGITS:
                tables.append(over_logits(*size, beta, arguments.device, rounds))
                show(tables[-1])
            for shape in SMALL_LINEAR if arguments.small else LINEAR:
                tables.append(through_linear(*shape, beta, arguments.device, rounds))
                show(tables[-1])
    if arguments.out:
        machine = describe_machine()
        record = {
            "date": datetime.date.today().isoformat(),
            "device": torch.cuda.get_device_name() if arguments.device == "cuda" else "interpreter",
            "backends": selection.describe(),
            "versions": machine.versions,
            "tables": tables,
        }
        write_atomically(arguments.out, json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
