"""The policy gradient over logits beside its peers: `eligibility bench`, its result kept.

    OMP_NUM_THREADS=1 taskset -c 1 python benchmarks/logits.py

About four and a half minutes on a quiet machine: after --budget seconds no further round of a size
begins. The result, with date, machine and versions, goes to benchmarks/results/logits-DATE.json.
`python -m benchmarks.report` then rewrites docs/performance.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from eligibility.bench.logits import CASES, measure
from eligibility.files import write_atomically

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    """Measure every case, write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--budget", type=float, default=5.0, help="seconds for each size's rounds")
    parser.add_argument("--no-compile", dest="with_compile", action="store_false")
    parser.add_argument("--out", type=Path, help="write here instead")
    arguments = parser.parse_args()
    result = measure(
        CASES,
        rounds=arguments.rounds,
        budget=arguments.budget,
        with_compile=arguments.with_compile,
        progress=lambda line: print(line, file=sys.stderr),
    )
    path = arguments.out or RESULTS / f"logits-{result.date[:10].replace('-', '')}.json"
    write_atomically(path, json.dumps(result.to_dict(), indent=2) + "\n")
    print(f"written to {path}")


if __name__ == "__main__":
    main()
