"""Scripts and configurations that TRL publishes, read by hand first, then audited.

    python -m benchmarks.trl_published CHECKOUT        # a git directory of TRL

``benchmarks/trl_published.json`` holds the reading, which was committed before the first run; the
results go to ``benchmarks/results/trl_published.json`` and into
``docs/audit/published_language.md``. Nothing of TRL's is kept. A configuration of the index of
papers, which is an argument and no program, is put into the README's script.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

from benchmarks import loops_published
from benchmarks.trl_options import SCRIPT, record_of
from eligibility.audit.trainers.sampling import PAIRS
from eligibility.audit.trainers.verdict import report_of

ROOT = Path(__file__).parents[1]
READING = ROOT / "benchmarks/trl_published.json"
RESULTS = ROOT / "benchmarks/results/trl_published.json"
PAGE = ROOT / "docs/audit/published_language.md"

REMARKS = (
    "The configuration for Dr. GRPO leaves `scale_rewards` at its default, which divides by the "
    'group\'s deviation; what the paper proposes needs `scale_rewards="none"` besides.',
    "",
    "The table is that of the second run. In the first, `gspo.py` (two splits loaded at once), "
    "`grpo_continuous_batching.py` (an option that is turned on late) and the four configurations "
    "with `beta=0.001` (too little for single precision) came out otherwise than read, and the "
    "audit was repaired. Three examples with tools or images stopped at what stood in for their "
    "data; by now they are refused for what they are, as they had been read, and their rows are "
    "of a later run. It still falls short in one: REINFORCE++ divides the KL in the reward by a "
    "deviation that "
    "contains it, for which there is no name. `Part I: Tricks` was read for the probe's two "
    "tokens, of which its `top_k` and `top_p` cut none; the audit says what they do to a real "
    "vocabulary.",
)


def script_of(checkout: str, commit: str, entry: dict[str, str]) -> str:
    """The program: a file, a block of a page, or the README's script with a configuration."""
    path, part = entry["path"], entry["part"]
    command = ["git", "-C", checkout, "show", f"{commit}:{path}"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    if not part:
        return text
    if "paper_index" not in path:
        blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        return next(block for block in blocks if part in block and "Trainer(" in block)
    title, _, number = part.partition("#")
    configurations = re.compile(r"(GRPO|RLOO)Config\(\n(.*?)\n\)", re.DOTALL)
    found = list(configurations.finditer(text, text.index(title)))[int(number or 1) - 1]
    lines = [line.split("#")[0].strip() for line in found[2].splitlines()]
    options = " ".join(line for line in lines if line.strip(", ") not in ("", "..."))
    return SCRIPT.format(kind=found[1], options=options, rewards="reward")


def audited(script: str, arguments: str, name: str) -> dict[str, Any]:
    """What the audit says."""
    record = record_of(script, tuple(shlex.split(arguments)), PAIRS)
    report = report_of(record, name)
    return {
        "verdict": report.verdict,
        "biasing": sorted(c.name for c in report.conventions if c.bias and c.bias > 1e-4),
        "findings": [finding.rule for finding in report.findings],
        "residual": None if math.isnan(report.residual) else report.residual,
        "summary": report.summary.replace(name, "the script"),
        "seconds": round(record.seconds, 1),
        "version": record.version,
    }


def page(reading: dict[str, Any], results: list[dict[str, Any]]) -> str:
    """The page, in Markdown."""
    as_read = sum(row["as_read"] for row in results)
    measured = [row for row in results if row["verdict"] != "inconclusive"]
    version = next(row["version"] for row in measured)
    lines = [
        "# What TRL publishes, audited",
        "",
        f"{len(results)} programs and configurations of [{reading['repository']}]"
        f"(https://github.com/{reading['repository']}/tree/{reading['commit']}) at commit "
        f"`{reading['commit'][:7]}`: its README, its documentation, its examples, and the "
        "configurations by which its index of papers reproduces them. Each was read by hand "
        "first, and the reading committed; then it was run by `eligibility audit` "
        f"with {version}. "
        f"{len(measured)} could be measured; {as_read} of {len(results)} came out as they had "
        "been read. *Bias* is that of the [probe](trl_options.md), which has rewards, lengths and "
        "policies of its own.",
        "",
        "| published | read as | audited as | bias | remark of the reading |",
        "|---|---|---|---:|---|",
    ]
    for entry, row in zip(reading["scripts"], results, strict=True):
        name = entry["path"] + (f": {entry['part']}" if entry["part"] else "")
        said = ", ".join(row["findings"] + row["biasing"])
        found = f"{row['verdict']}: {said}" if said else row["verdict"]
        if row["verdict"] == "inconclusive":
            found = f"refused: {row['summary'].partition(':')[0]}"
        read = ", ".join(entry["biasing"]) or entry["verdict"]
        mark = "" if row["as_read"] else "**≠** "
        bias = "–" if row["residual"] is None else f"{row['residual']:.1%}"
        lines.append(f"| {name} | {read} | {mark}{found} | {bias} | {entry['reading']} |")
    lines += ["", *REMARKS, "", *loops_published.lines()]
    lines += ["Made by `python -m benchmarks.trl_published` and `benchmarks.loops_published`."]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run all, and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkout", nargs="?", help="without it, only the page is written again")
    parser.add_argument("--only", nargs="*", help="run those alone whose path or part has this")
    arguments = parser.parse_args()
    checkout, only = arguments.checkout, arguments.only
    reading = json.loads(READING.read_text(encoding="utf-8"))
    if checkout:
        trl: Any = importlib.import_module("trl")
        for name in ("GRPOTrainer", "RLOOTrainer", "GRPOConfig", "RLOOConfig"):
            getattr(trl, name)  # loaded once here, not in every fork
        known = json.loads(RESULTS.read_text(encoding="utf-8")) if only else []
        results = []
        for number, entry in enumerate(reading["scripts"]):
            name = f"{entry['path']} {entry['part']}"
            if number < len(known) and not any(part in name for part in only):
                results.append(known[number])
                continue
            script = script_of(checkout, reading["commit"], entry)
            row = audited(script, entry["arguments"], entry["path"])
            wanted = (entry["verdict"], entry["biasing"])
            stopped = row["summary"].startswith("the program stopped")
            row["as_read"] = (row["verdict"], row["biasing"]) == wanted and not stopped
            results.append(row)
            print(entry["path"], entry["part"], row, flush=True)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    write_page()


def write_page() -> None:
    """The page, of what was measured last."""
    reading = json.loads(READING.read_text(encoding="utf-8"))
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    if len(results) == len(reading["scripts"]):
        PAGE.write_text(page(reading, results), encoding="utf-8")


if __name__ == "__main__":
    main()
