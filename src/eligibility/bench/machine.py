"""What figures were measured on."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("eligibility", "torch", "numpy", "liger-kernel", "cut-cross-entropy", "trl")


@dataclass(frozen=True)
class Machine:
    """Processor, system, load and versions; a name without a version is not installed."""

    processor: str
    cores: int | None
    system: str
    load_average: tuple[float, ...]  # over 1, 5 and 15 minutes, at the end
    versions: dict[str, str]


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
