"""Audits programs that train with frameworks, and compares with what was read in the packages.

    python -m benchmarks.audit_frameworks [CLEANRL] [--only TEXT] [--page]

``benchmarks/frameworks/`` has a short program for each, as the framework's documentation writes it;
``benchmarks/frameworks.json`` says what it computes, read in the package's own code and committed
before the first run. CLEANRL is a checkout of that repository, whose scripts are not part of this
project. Frameworks that are not installed are left out, and their last results are kept; so they
can be installed by turns in environments of their own.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
from pathlib import Path
from typing import Any

import eligibility as el
from benchmarks.audit_published import FAULTY, findings_of, is_right, processor_seconds

ROOT = Path(__file__).parents[1]
LIST = ROOT / "benchmarks" / "frameworks.json"
RESULTS = ROOT / "benchmarks" / "results" / "audit_frameworks.json"
PAGE = ROOT / "docs" / "audit" / "frameworks.md"


def audit(entry: dict[str, Any], checkout: Path | None) -> dict[str, Any] | None:
    """What the audit says of one program; None if something that it needs is not here."""
    if any(importlib.util.find_spec(package) is None for package in entry["packages"]):
        return None
    name = entry["program"]
    folder = checkout if ":" in name else LIST.parent / "frameworks"
    if folder is None:
        return None
    path = folder / name.split(":")[-1]
    started = processor_seconds()
    report = el.audit_script(path, memory_limit=4096)
    return {
        "program": name,
        "versions": {p: importlib.metadata.version(p) for p in entry["packages"]},
        "verdict": report.verdict,
        "summary": report.summary,
        "rule": report.rule,
        "findings": [[f.rule, f.severity, f.line] for f in report.findings],
        "conventions": [convention.name for convention in report.conventions],
        "paths": report.paths,
        "seconds": round(processor_seconds() - started, 1),
    }


def page(entries: list[dict[str, Any]], results: dict[str, dict[str, Any]]) -> str:
    """The comparison as a page."""
    rows = [(entry, results[entry["program"]]) for entry in entries if entry["program"] in results]
    decided = [row for row in rows if row[1]["verdict"] not in ("inconclusive", "unexplained")]
    right = sum(is_right(*row) for row in decided)
    sound = [row for row in rows if row[0]["verdict"] not in FAULTY]
    alarms = sum(result["verdict"] in FAULTY for _, result in sound)
    missing = [entry for entry in entries if entry["program"] not in results]
    lines = [
        "# Frameworks",
        "",
        f"{len(rows)} programs that train with a framework, as its documentation writes them. What "
        "each computes was read in the framework's own code before the first run: "
        f"{len(decided)} are decided, {right} of them rightly; {alarms} of {len(sound)} programs "
        "without a fault are called faulty. Made by `python -m benchmarks.audit_frameworks`.",
        "",
        "| program | version | as read | as measured | rule or findings | by reading | s |",
        "|---|---|---|---|---|---|---|",
    ]
    for entry, result in rows:
        found = findings_of(result) if result["findings"] else result["rule"] or "–"
        versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
        lines.append(
            f"| `{entry['program'].split(':')[-1]}` | {versions} | {entry['verdict']} "
            f"| {result['verdict']} | {found} | {entry['reading']} | {result['seconds']:.0f} |"
        )
    if missing:
        lines += ["", "Read, and not run to an end of the audit:", ""]
        lines += [f"- `{entry['program'].split(':')[-1]}`: {entry['reading']}" for entry in missing]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Audit, write the figures and the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=Path, nargs="?", help="of CleanRL")
    parser.add_argument("--only", default="", help="programs whose name contains it")
    parser.add_argument("--page", action="store_true", help="audit nothing")
    options = parser.parse_args()
    entries = json.loads(LIST.read_text(encoding="utf-8"))
    known = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else []
    results = {row["program"]: row for row in known}
    for entry in entries:
        if options.page or options.only not in entry["program"]:
            continue
        result = audit(entry, options.checkout)
        if result is not None:
            results[entry["program"]] = result
            print(f"{entry['program']}: {result['verdict']}, {result['summary']}", flush=True)
        ordered = [results[e["program"]] for e in entries if e["program"] in results]
        RESULTS.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(entries, results), encoding="utf-8")


if __name__ == "__main__":
    main()
