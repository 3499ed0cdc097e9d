"""Attacks the product, keeps what happened, and writes docs/reliability.md.

    python -m benchmarks.reliability              every part, a few minutes each
    python -m benchmarks.reliability kills        one part; those measured before stay
    python -m benchmarks.reliability --page       the page alone, from the results

A part is a module of this package with a ``TITLE``, a docstring that says what is done, and a
``run()`` that yields a `Row` for each attack. Its name in `PARTS` is all that it takes.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
import warnings
from dataclasses import asdict
from datetime import datetime, timezone
from importlib import import_module

from benchmarks.reliability.page import PAGE, PARTS, RESULTS, page
from eligibility.files import write_atomically


def measure(part: str) -> None:
    """Run a part and keep its rows; they replace those that were there."""
    module, rows, started = import_module(f"benchmarks.reliability.{part}"), [], time.time()
    for row in module.run():
        rows.append(asdict(row))
        print(f"{part}: {row.held} of {row.tried}  {row.attack}", file=sys.stderr, flush=True)
        for failure in row.failures:
            print(f"    {failure}", file=sys.stderr, flush=True)
    result = {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "minutes": round((time.time() - started) / 60, 1),
        "rows": rows,
    }
    write_atomically(RESULTS / f"{part}.json", json.dumps(result, indent=1) + "\n")


def main() -> None:
    """Measure what was asked for, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; default: all")
    parser.add_argument("--page", action="store_true", help="only write the page")
    asked = parser.parse_args()
    unknown = {*asked.parts} - {*PARTS}
    if unknown:
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    if not asked.page:
        warnings.simplefilter("ignore")  # what a library thinks of nonsense is not ours
        for part in asked.parts or PARTS:
            measure(part)
    write_atomically(PAGE, page())


if __name__ == "__main__":
    main()
