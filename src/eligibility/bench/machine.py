"""What figures were measured on."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

_COPIED = 1 << 26  # elements of float32: 256 MB, beyond every cache
_MULTIPLIED = 1024
_LONG_ENOUGH = 1.0  # seconds of calls, after which no further one is made
PACKAGES = (
    "eligibility", "torch", "numpy", "liger-kernel", "cut-cross-entropy", "trl", "transformers",
)  # fmt: skip


@dataclass(frozen=True)
class Machine:
    """Processor, system, load and versions; a name without a version is not installed."""

    processor: str
    cores: int | None
    system: str
    load_average: tuple[float, ...]  # over 1, 5 and 15 minutes, at the end
    versions: dict[str, str]


@dataclass(frozen=True)
class Roofline:
    """What this machine can do at most, measured with the threads that are measured with."""

    copy_gb_per_s: float  # read and written, into memory that was used before
    matmul_gflop_per_s: dict[str, float]  # by dtype, of square matrices


def measure_roofline(clock: Callable[[], float]) -> Roofline:
    """The bandwidth of a large copy and the throughput of torch's matrix product."""
    source = torch.ones(_COPIED)
    target = torch.zeros(_COPIED)
    copy = _best(lambda: target.copy_(source), clock)
    del source, target
    speeds = {}
    for dtype in (torch.float32, torch.bfloat16):
        a = torch.ones(_MULTIPLIED, _MULTIPLIED, dtype=dtype)
        out = torch.empty_like(a)
        seconds = _best(partial(torch.mm, a, a, out=out), clock)
        speeds[str(dtype).removeprefix("torch.")] = 2e-9 * _MULTIPLIED**3 / seconds
    return Roofline(8e-9 * _COPIED / copy, speeds)


def _best(step: Callable[[], object], clock: Callable[[], float]) -> float:
    """Seconds of the fastest of up to five calls after a first one; a slow step gets fewer."""
    times: list[float] = []
    while len(times) < 2 or (len(times) < 6 and sum(times) < _LONG_ENOUGH):
        start = clock()
        step()
        times.append(clock() - start)
    return min(times[1:])


def describe_machine() -> Machine:
    """This machine, now."""
    return Machine(
        processor=_processor(),
        cores=os.cpu_count(),
        system=platform.platform(),
        load_average=tuple(os.getloadavg()) if hasattr(os, "getloadavg") else (),
        versions={"python": platform.python_version(), **_versions()},
    )


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor()


def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
