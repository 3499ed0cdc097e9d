"""How long ``eligibility audit`` takes for a script of the size of pytorch/examples' reinforce.py.

    taskset -c 1 python -m benchmarks.audit_speed [--repeat N]

The whole process is timed, from its start to its exit: imports, the child process, every path and
the report. It takes about N times 10 seconds. The result goes to results/audit_speed.json, with
the time that ``import torch`` alone takes on the same machine at the same moment.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.audit.zoo.styles import STYLES, untagged

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "audit_speed.json"


def seconds_of(*command: str) -> tuple[float, str]:
    """Wall time of a process that must succeed, and what it printed."""
    started = time.perf_counter()
    done = subprocess.run([sys.executable, *command], check=True, capture_output=True, text=True)
    return time.perf_counter() - started, done.stdout


def main() -> None:
    """Measure and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    # the zoo's program in the style of pytorch/examples: saved_log_probs, finish_episode, argparse
    text = untagged(next(style for style in STYLES if style.name == "old_gym").text)
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "reinforce.py"
        program.write_text(text, encoding="utf-8")
        runs, report = [], ""
        for _ in range(options.repeat):
            spent, report = seconds_of("-m", "eligibility", "audit", str(program), "--json")
            runs.append(spent)
    torch_alone = min(seconds_of("-c", "import torch")[0] for _ in range(options.repeat))
    told = json.loads(report)
    result = {
        "lines": len(text.splitlines()),
        "verdict": told["verdict"],
        "paths": told["paths"],
        "median_seconds": round(statistics.median(runs), 2),
        "all_seconds": [round(spent, 2) for spent in runs],
        "import_torch_seconds": round(torch_alone, 2),
    }
    options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
