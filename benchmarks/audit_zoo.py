"""Scores the audit on its zoo: detection, right naming and false alarms, with Wilson intervals.

    python -m benchmarks.audit_zoo [--half tuning|opened|scored] [--jobs N] [--seconds N]
    python -m benchmarks.audit_zoo --styles NAME,NAME --after COMMIT

A mutant counts as detected if the audit reports a fault or a warning, and as named if one of its
findings is the rule expected and stands on the line that was changed. A mutant that gives the
policy the gradient of the clean program on every path of the probe is no mutant: it is listed as
equivalent. A clean program is a false alarm if any fault is reported. A program that takes more
than ``--limit`` seconds of the processor, or ends its process, counts as not detected and is
listed.

The programs are taken in a seeded random order, each in a process of its own. Every row is written
as it comes, with a fingerprint of the audit's source: the same command again goes on where the
last one ended, and runs anew only what an other state of the audit had measured. About 2.5 s a
program, 50 minutes for all of them on one core; ``--page`` only writes the figures and the page.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import random
import resource
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # optimizers import it on first use

from tests.audit.zoo.inspection import audit_program, same_gradient, wilson
from tests.audit.zoo.mutations import MUTATIONS, mutants
from tests.audit.zoo.styles import HALVES, PATCHED_STYLES, STYLES, Program, untagged
from tests.audit.zoo.variants import clean_programs

ROOT = Path(__file__).parents[1]
ROWS = ROOT / "build" / "audit_zoo.jsonl"
RESULTS = ROOT / "benchmarks" / "results" / "audit_zoo.json"
FIRST = ROOT / "benchmarks" / "results" / "audit_zoo_first.json"
PAGE = ROOT / "docs" / "audit" / "zoo.md"
# Faults that the gradient of the first update does not have.
_OF_THE_SECOND_UPDATE = {
    "stale-batch", "stale-graph", "second-update-fails", "second-update-differs",
    "ratio-always-one", "old-log-prob-stale", "acting-policy-stale", "gradients-not-zeroed",
    "critic-target-not-detached",
}  # fmt: skip
_LATE = "took longer than {:g} s"
_NEAR = 2  # lines
_PATIENCE = 20  # of the clock, as multiples of the processor time that a program may take
FIGURES = (
    "detected",
    "named",
    "named_on_its_line",
    "false_alarms",
    "clean_programs_judged",
    "conventions_named",
)

Row = dict[str, Any]


def state_of_the_audit() -> str:
    """Fingerprint of the sources that decide a verdict."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / "src" / "eligibility" / "audit").rglob("*.py")):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def inspect(program: Program) -> Row:
    """What the audit says of one program."""
    started = time.process_time()
    report = audit_program(program)
    named = [finding for finding in report.findings if finding.rule in program.expected]
    harmless = program.harmless or untagged(program.style.text)
    return identity(program) | {
        "verdict": report.verdict,
        "rules": [finding.rule for finding in report.findings],
        "lines": [finding.line for finding in report.findings],
        "residual": report.residual if report.residual == report.residual else None,
        "fault": bool(report.faults) or report.exit_status == 1,
        "detected": bool(report.findings),
        "named": bool(named),
        "on_its_line": any(finding.line in program.lines for finding in named),
        "near": any(abs(f.line - line) <= _NEAR for f in named for line in program.lines),
        "equivalent": bool(program.expected)
        and not _OF_THE_SECOND_UPDATE & set(program.expected)
        and not report.findings
        and same_gradient(program, Program("", program.style, harmless)),
        "conventions_named": set(program.conventions) <= {c.name for c in report.conventions},
        "seconds": round(time.process_time() - started, 1),
    }


def identity(program: Program) -> Row:
    """What a row is about."""
    text = hashlib.sha256(program.text.encode()).hexdigest()[:12]
    return {
        "program": program.name,
        "text": text,
        "half": program.style.half,
        "mutant": bool(program.expected),
    }


def without_result(program: Program, why: str) -> Row:
    """The row of a program whose audit did not come to an end: not detected, and no alarm."""
    missing = dict.fromkeys(
        ("fault", "detected", "named", "on_its_line", "near", "equivalent"), False
    )
    return identity(program) | missing | {
        "verdict": why, "rules": [], "lines": [], "residual": None, "conventions_named": False,
    }  # fmt: skip


def _child(program: Program, answer: Connection, limit: float) -> None:
    torch.set_num_threads(1)
    used = resource.getrusage(resource.RUSAGE_SELF)
    allowed = int(used.ru_utime + used.ru_stime + limit) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (allowed, allowed + 1))
    answer.send(inspect(program))


def measured(programs: Sequence[Program], jobs: int, limit: float, until: float) -> Iterator[Row]:
    """A row for every program that was begun before the clock reads ``until``."""
    context = multiprocessing.get_context("fork")
    if programs:
        audit_program(programs[0])  # what is loaded on first use is then loaded in every process
    waiting = list(reversed(programs))
    running: list[tuple[Program, Any, Connection, float]] = []
    while running or (waiting and time.monotonic() < until):
        while waiting and len(running) < jobs and time.monotonic() < until:
            program = waiting.pop()
            here, there = context.Pipe(duplex=False)
            process = context.Process(target=_child, args=(program, there, limit))
            process.start()
            there.close()
            running.append((program, process, here, time.monotonic() + _PATIENCE * limit))
        for job in list(running):
            program, process, here, deadline = job
            if here.poll(0.02):
                try:
                    yield here.recv()
                except EOFError:
                    process.join()
                    late = process.exitcode == -signal.SIGXCPU
                    ended = f"ended with status {process.exitcode}"
                    yield without_result(program, _LATE.format(limit) if late else ended)
            elif time.monotonic() > deadline:
                process.kill()
                yield without_result(program, _LATE.format(limit))
            else:
                continue
            process.join()
            here.close()
            running.remove(job)


def rows_of(path: Path, state: str, programs: Sequence[Program]) -> list[Row]:
    """The last rows of ``programs`` that were measured in a state of the audit; "" for any."""
    if not path.exists():
        return []
    wanted = {(row["program"], row["text"]) for row in map(identity, programs)}
    found = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    rows = {
        row["program"]: row for row in found
        if state in ("", row["state"]) and (row["program"], row["text"]) in wanted
    }  # fmt: skip
    return [rows[name] for name in sorted(rows)]


def share(rows: Sequence[Row], what: str) -> dict[str, object]:
    """How many of ``rows`` have a property, with its interval."""
    hits = sum(bool(row[what]) for row in rows)
    interval = [round(bound, 4) for bound in wilson(hits, len(rows))]
    return {"hits": hits, "of": len(rows), "wilson_95": interval}


def summarise(rows: Sequence[Row], half: str) -> Row:
    """The figures of one part of the zoo."""
    mine = [row for row in rows if row["half"] == half]
    broken = [row for row in mine if row["mutant"]]
    faulty = [row for row in broken if not row["equivalent"]]
    fine = [row for row in mine if not row["mutant"]]
    return {
        "equivalent": len(broken) - len(faulty),
        "detected": share(faulty, "detected"),
        "named": share(faulty, "named"),
        "named_on_its_line": share(faulty, "on_its_line"),
        "false_alarms": share(fine, "fault"),
        "clean_programs_judged": share([row | {"judged": _judged(row)} for row in fine], "judged"),
        "conventions_named": share(fine, "conventions_named"),
        "not_named": [row for row in faulty if not (row["named"] and row["on_its_line"])],
        "alarms": [row for row in fine if row["fault"]],
    }


def _judged(row: Row) -> bool:
    """Whether the audit came to a verdict."""
    return row["verdict"] in ("unbiased", "convention", "biased", "wrong-sign", "no-gradient")


def page(result: Row, firsts: Sequence[Row]) -> str:
    """The figures as a page."""
    done, there = result["measured"], result["programs"]
    lines = [
        "# The zoo: how the audit itself is tested",
        "",
        f"{len(STYLES)} styles of program × {len(MUTATIONS)} faults, {len(PATCHED_STYLES)} styles "
        "with faults of their own, and all of them × hyperparameters × conventions as clean "
        "programs. The audit was written with the tuning styles at hand. The opened ones were "
        "written afterwards, the last nine by somebody who had not read the audit, and scored "
        "once, below; what was met in them was then repaired, so they are tuning styles since. "
        "Made by `python -m benchmarks.audit_zoo`.",
        "",
        f"{done} of the zoo's {there} programs were audited for this page, in a seeded random "
        f"order, in {len(result['states'])} state(s) of the audit's source"
        f"{'' if result['present'] else ', earlier than the present one'}. Intervals are "
        "Wilson's, 95 %.",
        "",
        *_table(result["halves"]),
    ]
    for first in firsts:
        lines += [
            "",
            f"## First score of {first['styles']} styles, before anything was changed",
            "",
            f"{first['measured']} of {first['programs']} programs, in a seeded random order, at "
            f"commit `{first['commit']}`. {first['note']}",
            "",
            *_table(first["halves"]),
            "",
            *_listed("Mutants without the right name on the right line then:", first, "not_named"),
            *_listed("False alarms then:", first, "alarms"),
            *_after(first),
        ]
    lines += ["", "## What is missed", ""]
    lines += _listed("Mutants without the right name on the right line:", result, "not_named")
    lines += _listed("False alarms:", result, "alarms")
    return "\n".join(lines).rstrip() + "\n"


def _after(first: Row) -> list[str]:
    """The same programs in a later state of the audit, if they were measured again."""
    if "after" not in first:
        return []
    after = first["after"]
    (figures,) = (f for f in after["halves"].values() if f["detected"]["of"])
    missed = figures["not_named"]
    near = sum(row["near"] for row in missed) + figures["named_on_its_line"]["hits"]
    return [
        f"The same {after['measured']} programs again, at commit `{after['commit']}`: the line of "
        f"{near} of the {figures['detected']['of']} is within two lines of what was changed.",
        "",
        *_table(after["halves"]),
        "",
        *_listed("Mutants without the right name on the right line now:", after, "not_named"),
        *_listed("False alarms now:", after, "alarms"),
    ]


def _table(halves: Row) -> list[str]:
    halves = {
        half: figures for half, figures in halves.items()
        if figures["detected"]["of"] + figures["false_alarms"]["of"]
    }  # fmt: skip
    lines = ["| | " + " | ".join(f"{half} styles" for half in halves) + " |"]
    lines.append("|---" * (len(halves) + 1) + "|")
    for name in FIGURES:
        cells = []
        for figures in halves.values():
            low, high = figures[name]["wilson_95"]
            hits, of = figures[name]["hits"], figures[name]["of"]
            cells.append(f"{hits} of {of} [{low:.1%}, {high:.1%}]")
        lines.append(f"| {name.replace('_', ' ')} | {' | '.join(cells)} |")
    equivalent = (str(figures["equivalent"]) for figures in halves.values())
    return [*lines, f"| equivalent mutants, not counted | {' | '.join(equivalent)} |"]


def _listed(title: str, result: Row, what: str) -> list[str]:
    rows = [row for figures in result["halves"].values() for row in figures[what]]
    items = []
    for row in rows:
        found = zip(row["rules"], row["lines"], strict=True)
        said = ", ".join(f"{rule}, line {line}" for rule, line in found) or "no finding"
        items.append(f"- `{row['program']}` ({row['half']}): {row['verdict']}, {said}")
    return [title, "", *(items or ["- none"]), ""]


def main() -> None:
    """Measure what is missing; write the figures and the page, unless only some were asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--half", choices=HALVES, help="only these styles")
    parser.add_argument("--only", default="", help="only programs whose name contains it")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no more then")
    parser.add_argument(
        "--limit", type=float, default=120.0, help="processor seconds of one program"
    )
    parser.add_argument("--rows", type=Path, default=ROWS, help="where the rows are kept")
    parser.add_argument("--page", action="store_true", help="measure nothing")
    parser.add_argument("--any-state", action="store_true", help="count rows of earlier states too")
    parser.add_argument(
        "--record", nargs=3, metavar=("COMMIT", "STYLES", "NOTE"), help="keep as a first score"
    )
    parser.add_argument(
        "--styles", default="", help="only these, separated by commas: what a first score was of"
    )
    parser.add_argument("--after", metavar="COMMIT", help="keep next to the last first score")
    options = parser.parse_args()
    everything, now = [*mutants(), *clean_programs()], state_of_the_audit()
    state = "" if options.any_state else now
    chosen = [
        program for program in everything
        if options.half in (None, program.style.half) and options.only in program.name
        and (not options.styles or program.style.name in options.styles.split(","))
    ]  # fmt: skip
    known = {row["program"] for row in rows_of(options.rows, state, chosen)}
    missing = [program for program in chosen if program.name not in known]
    random.Random(0).shuffle(missing)
    if not options.page:
        options.rows.parent.mkdir(parents=True, exist_ok=True)
        until = time.monotonic() + options.seconds
        with options.rows.open("a", encoding="utf-8") as file:
            for number, row in enumerate(measured(missing, options.jobs, options.limit, until), 1):
                file.write(json.dumps(row | {"state": now}) + "\n")
                file.flush()
                print(f"{number}/{len(missing)} {_told(row)}", file=sys.stderr, flush=True)
    rows = rows_of(options.rows, state, everything)
    result = {
        "states": sorted({row["state"] for row in rows}),
        "present": {row["state"] for row in rows} == {now},
        "programs": len(everything),
        "measured": len(rows),
        "halves": {half: summarise(rows, half) for half in HALVES},
    }
    if options.after or options.record:  # of the whole zoo they say nothing new
        result = json.loads(RESULTS.read_text(encoding="utf-8"))
    elif options.half or options.only or options.styles or options.rows != ROWS:
        print(json.dumps(result, indent=1))
        return
    RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    firsts = json.loads(FIRST.read_text(encoding="utf-8"))
    if options.after:
        again = rows_of(options.rows, state, chosen)
        firsts[-1]["after"] = _first(again, len(chosen), options.after, firsts[-1]["styles"], "")
    if options.record:
        firsts.append(_first(rows_of(options.rows, state, chosen), len(chosen), *options.record))
    if options.after or options.record:
        FIRST.write_text(json.dumps(firsts, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(result, firsts), encoding="utf-8")


def _first(rows: Sequence[Row], programs: int, commit: str, styles: str, note: str) -> Row:
    """The first score of styles, as it is kept."""
    there = {row["half"] for row in rows}
    return {
        "commit": commit, "programs": programs, "measured": len(rows), "styles": styles,
        "note": note, "halves": {h: summarise(rows, h) for h in HALVES if h in there},
    }  # fmt: skip


def _told(row: Row) -> str:
    wrong = not row["on_its_line"] if row["mutant"] else row["fault"]
    mark = "equivalent" if row["equivalent"] else "MISSED" if wrong else "right"
    return f"{row['program']} {mark} {row['verdict']} {row['rules']} {row['lines']}"


if __name__ == "__main__":
    main()
