"""Measure every rule in every dtype and write the pages."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from benchmarks.exactness.families import FAMILIES
from benchmarks.exactness.measure import DTYPES, measure
from benchmarks.exactness.report import summary, tables


def main() -> None:
    """Print a line a measurement as it comes in, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=200, help="random points a distribution")
    parser.add_argument("--output", type=Path, default=Path("docs"), help="folder of both pages")
    arguments = parser.parse_args()
    started = time.monotonic()
    results = []
    for family in FAMILIES:
        for dtype in DTYPES:
            for result in measure(family, dtype, arguments.points):
                results.append(result)
                print(
                    f"{result.label:30} {result.parameter:28} {dtype!s:16}"
                    f" worst {result.rule.worst:8.3g}  median {result.rule.median:5.2f}"
                    f"  bad {result.rule.bad}"
                )
    first = summary(results, arguments.points, time.monotonic() - started)
    for name, page in (("exactness.md", first), ("exactness_tables.md", tables(results))):
        (arguments.output / name).write_text(page, encoding="utf-8")
    print(f"wrote two pages to {arguments.output}")


if __name__ == "__main__":
    main()
