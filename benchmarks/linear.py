"""A policy-gradient step through the last layer of a language model, beside its peers.

    OMP_NUM_THREADS=1 taskset -c 1 python benchmarks/linear.py --dtype bfloat16 \
        --out benchmarks/results/linear-bfloat16.json

Run it on one core, with nothing else on it; with --entropy once more. What is measured is said in
`eligibility.bench.linear`. Peers that are installed take part: cut-cross-entropy, liger-kernel.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
from dataclasses import asdict
from pathlib import Path

import torch

import eligibility as el
from eligibility.bench.linear import Size, left_out, measure_linear
from eligibility.bench.machine import describe_machine


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], default="bfloat16")
    parser.add_argument("--size", type=int, nargs=3, metavar=("N", "V", "D"))
    parser.add_argument("--entropy", dest="beta", action="store_const", const=0.01, default=0.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="the methods whose name contains this")
    parser.add_argument("--no-memory", dest="with_memory", action="store_false")
    parser.add_argument("--out", type=Path, help="write the rows as JSON to this file")
    parser.set_defaults(size=[2048, 32768, 1024])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = measure_linear(
        Size(*arguments.size),
        arguments.dtype,
        arguments.beta,
        rounds=arguments.rounds,
        with_memory=arguments.with_memory,
        only=arguments.only,
    )
    print(f"{'':36}seconds   ratio  peak MiB  gradient error")
    for row in rows:
        peak = float("nan") if row.extra_peak_mib is None else row.extra_peak_mib
        print(
            f"{row.method:36}{row.seconds:7.3f} {row.ratio:7.3f} {peak:9.0f}"
            f"  {row.gradient_error:.1e}"
        )
    if arguments.out:
        machine = describe_machine()
        record = {
            "date": datetime.date.today().isoformat(),
            "processor": machine.processor,
            "threads": torch.get_num_threads(),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "eligibility": el.__version__,
            "versions": machine.versions,
            "dtype": arguments.dtype,
            "N, V, D": arguments.size,
            "entropy_coef": arguments.beta,
            "rounds": arguments.rounds,
            "rows": [asdict(row) for row in rows],
            "left_out": left_out(arguments.beta),
        }
        arguments.out.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
