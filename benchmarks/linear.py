"""A policy-gradient step through the last layer of a language model, compared with its peers.

    OMP_NUM_THREADS=1 taskset -c 1 python -m benchmarks.linear --out benchmarks/results/linear.json

Four tables, without and with an entropy bonus, in bfloat16 and float32: about 8 minutes on one
quiet core. Peers that are installed take part: cut-cross-entropy, liger-kernel, trl (which needs
transformers, accelerate, datasets and pandas). None of them is a dependency; put them into an
environment of their own together with this package. `eligibility.bench.linear` says what is
measured.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import time
from dataclasses import asdict
from pathlib import Path

import torch
from rich.console import Console

import eligibility as el
from eligibility.bench.linear import LinearTable, Size, measure_linear
from eligibility.bench.machine import describe_machine
from eligibility.bench.rendering import grid
from eligibility.files import write_atomically

CASES = (("bfloat16", Size(2048, 32768, 1024)), ("float32", Size(512, 32768, 1024)))


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], help="only this one")
    parser.add_argument("--size", type=int, nargs=3, metavar=("N", "V", "D"), help="in its place")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="the methods whose name contains this")
    parser.add_argument("--out", type=Path, help="write the tables as JSON to this file")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    start, tables = time.perf_counter(), []
    for dtype, size in CASES:
        if arguments.dtype in (None, dtype):
            size = Size(*arguments.size) if arguments.size else size
            for beta in (0.0, 0.01):
                tables.append(
                    measure_linear(
                        size, dtype, beta, rounds=arguments.rounds, only=arguments.only,
                        progress=lambda line: print(line, flush=True),
                    )
                )  # fmt: skip
                Console().print(grid(tables[-1]))
                for name, reason in tables[-1].left_out.items():
                    print(f"{name}: {reason}")
                if arguments.out:  # an interrupted run keeps what it has
                    write(arguments.out, tables, arguments.rounds, time.perf_counter() - start)


def write(out: Path, tables: list[LinearTable], rounds: int, seconds: float) -> None:
    """All that is known, as JSON."""
    machine = describe_machine()
    record = {
        "date": datetime.date.today().isoformat(),
        "processor": machine.processor,
        "load_average": machine.load_average,
        "threads": torch.get_num_threads(),
        "seconds": round(seconds),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "eligibility": el.__version__,
        "versions": machine.versions,
        "rounds": rounds,
        "tables": [asdict(table) for table in tables],
    }
    write_atomically(out, json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
