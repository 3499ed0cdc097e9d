"""Scores the audit on its zoo: detection, right naming and false alarms, with Wilson intervals.

    python -m benchmarks.audit_zoo [--seconds N]

A mutant counts as detected if the audit reports a fault or a warning, and as named if one of its
findings is the rule expected and stands on the line that was changed. A mutant that gives the
policy the gradient of the clean program on every path of the probe is no mutant: it is listed as
equivalent. A clean program is a false alarm if any fault
is reported. With ``--seconds`` the programs are taken in a seeded random order until the time is
up; the result says how many of them there are.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # optimizers import it on first use

from tests.audit.zoo.inspection import audit_program, same_gradient, wilson
from tests.audit.zoo.mutations import MUTATIONS, mutants
from tests.audit.zoo.styles import STYLES, Program, untagged
from tests.audit.zoo.variants import clean_programs

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "audit_zoo.json"
PAGE = ROOT / "docs" / "audit" / "zoo.md"


def inspect(program: Program) -> dict[str, object]:
    """What the audit says of one program."""
    report = audit_program(program)
    named = [finding for finding in report.findings if finding.rule in program.expected]
    return {
        "program": program.name,
        "half": "tuning" if program.style.tuning else "scored",
        "verdict": report.verdict,
        "rules": [finding.rule for finding in report.findings],
        "residual": report.residual if report.residual == report.residual else None,
        "fault": bool(report.faults) or report.exit_status == 1,
        "detected": bool(report.findings),
        "named": bool(named),
        "on_its_line": any(finding.line in program.lines for finding in named),
        "equivalent": bool(program.expected)
        and not report.findings
        and same_gradient(program, Program("", program.style, untagged(program.style.text))),
        "conventions_named": set(program.conventions) <= {c.name for c in report.conventions},
    }


def share(rows: Sequence[dict[str, object]], what: str) -> dict[str, object]:
    """How many of ``rows`` have a property, with its interval."""
    hits = sum(bool(row[what]) for row in rows)
    return {
        "hits": hits,
        "of": len(rows),
        "wilson_95": [round(v, 4) for v in wilson(hits, len(rows))],
    }


def run(programs: list[Program], seconds: float) -> list[dict[str, object]]:
    """The programs that the time allows for, in a seeded order."""
    random.Random(0).shuffle(programs)
    started, rows = time.monotonic(), []
    for number, program in enumerate(programs, 1):
        if time.monotonic() - started > seconds:
            break
        rows.append(inspect(program))
        print(f"\r{number}/{len(programs)} {program.name:<60}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return rows


def summarise(
    broken: list[dict[str, object]], clean: list[dict[str, object]], sizes: tuple[int, int]
) -> dict[str, object]:
    """The figures of each half."""
    result: dict[str, object] = {"mutants": sizes[0], "clean_programs": sizes[1]}
    for half in ("tuning", "scored"):
        mine = [row for row in broken if row["half"] == half]
        faulty = [row for row in mine if not row["equivalent"]]
        fine = [row for row in clean if row["half"] == half]
        result[half] = {
            "mutants_run": len(mine),
            "equivalent": len(mine) - len(faulty),
            "detected": share(faulty, "detected"),
            "named": share(faulty, "named"),
            "named_on_its_line": share(faulty, "on_its_line"),
            "false_alarms": share(fine, "fault"),
            "conventions_named": share(fine, "conventions_named"),
        }
    missed = [r for r in broken if not (r["named"] and r["on_its_line"])]
    return result | {"not_named": missed, "alarms": [r for r in clean if r["fault"]]}


def page(result: dict[str, Any]) -> str:
    """The figures as a page."""
    lines = [
        "# The zoo: how the audit itself is tested",
        "",
        f"{len(STYLES)} styles of program × {len(MUTATIONS)} faults, and the same styles × "
        "hyperparameters × conventions as clean programs. The audit was written with the tuning "
        "styles at hand. The scored ones were written afterwards, by the hand that wrote the "
        "diagnosis, and their first result is this table: nothing was changed after it. Made by "
        "`python -m benchmarks.audit_zoo`.",
        "",
        f"The zoo has {result['mutants']} mutants and {result['clean_programs']} clean programs; "
        "the table says how many of them this run took. Intervals are Wilson's, 95 %.",
        "",
        "| | tuning styles | scored styles |",
        "|---|---|---|",
    ]
    for name in ("detected", "named", "named_on_its_line", "false_alarms", "conventions_named"):
        cells = []
        for half in ("tuning", "scored"):
            figure = result[half][name]
            low, high = figure["wilson_95"]
            cells.append(f"{figure['hits']} of {figure['of']} [{low:.1%}, {high:.1%}]")
        lines.append(f"| {name.replace('_', ' ')} | {cells[0]} | {cells[1]} |")
    equivalent = [result[half]["equivalent"] for half in ("tuning", "scored")]
    lines.append(f"| equivalent mutants, not counted | {equivalent[0]} | {equivalent[1]} |")
    lines += ["", "Mutants without the right name on the right line:", ""]
    for row in result["not_named"]:
        rules = ", ".join(row["rules"]) or "no finding"
        lines.append(f"- `{row['program']}`: {row['verdict']}, {rules}")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run, write the figures and the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=float("inf"), help="for each kind")
    seconds = parser.parse_args().seconds
    torch.set_num_threads(1)
    broken, clean = list(mutants()), list(clean_programs())
    sizes = len(broken), len(clean)
    result = summarise(run(broken, seconds), run(clean, seconds), sizes)
    RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(result), encoding="utf-8")


if __name__ == "__main__":
    main()
