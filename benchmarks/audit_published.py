"""Audits scripts that somebody published, unmodified, and compares with a reading by hand.

    python -m benchmarks.audit_published FOLDER [--only TEXT] [--seconds N]

``benchmarks/published.json`` lists repository, commit, path, arguments, and what the script
computes by a reading line by line: its verdict and its rules. The scripts are not part of this
project. FOLDER holds them as ``owner+name/<first 12 digits of the commit>/path``. Some of them need
ptan, tyro or a stand-in for a package that they import; their entries say so. An entry's ``folder``
is where its program is started, and its ``import_path`` where it finds modules, both from the root
of its repository. About 10 s a script, minutes for those with batches of thousands of steps; with
``--seconds`` no new one is started after that time, and the results of the others are kept;
``--page`` only compares and writes the page.

Entries with ``field`` were read, and the reading committed, before the audit had ever met them or
anything of theirs; ``at`` is the file and the line of their main fault. What the audit makes of
them is a table of its own for each number of ``field``. ``audit_published_first.json`` keeps what
the audit said when it met those of 2 and later; a row of it is never written again.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import os
import re
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import eligibility as el
from eligibility.audit.reporting.report import AuditReport
from eligibility.audit.running.forkserver import close_servers
from eligibility.errors import InvalidValueError
from eligibility.notebooks import script_of

ROOT = Path(__file__).parents[1]
LIST = ROOT / "benchmarks" / "published.json"
RESULTS = ROOT / "benchmarks" / "results" / "audit_published.json"
FIRST = ROOT / "benchmarks" / "results" / "audit_published_first.json"
PAGE = ROOT / "docs" / "audit" / "published.md"
TITLES = {
    1: "Field test",
    2: "A second field test",
    3: "A third field test",
    4: "A fourth field test",
    5: "A fifth field test",
    6: "A sixth field test",
    7: "A seventh field test",
    8: "An eighth field test",
    9: "A ninth field test",
    10: "A tenth field test",
    11: "An eleventh field test",
    12: "A twelfth field test",
    13: "A thirteenth field test",
    14: "A fourteenth field test",
    15: "A fifteenth field test",
    16: "A sixteenth field test",
    17: "A seventeenth field test",
}


def place_of(entry: dict[str, Any], folder: Path) -> Path:
    """Where the script of an entry lies in ``folder``."""
    return root_of(entry, folder) / entry["path"]


def root_of(entry: dict[str, Any], folder: Path) -> Path:
    """Where the repository of an entry lies in ``folder``."""
    return folder.resolve() / entry["repository"].replace("/", "+") / entry["commit"][:12]


@contextlib.contextmanager
def standing_in(entry: dict[str, Any], folder: Path) -> Iterator[None]:
    """In the folder that the program is started in, with the modules that it is to find."""
    root, known = root_of(entry, folder), os.environ.get("PYTHONPATH")
    found = [str(root / name) for name in entry.get("import_path", ())]
    os.environ["PYTHONPATH"] = os.pathsep.join([*found, *filter(None, [known])])
    try:
        with contextlib.chdir(root / entry["folder"] if "folder" in entry else Path.cwd()):
            yield
    finally:
        os.environ["PYTHONPATH"] = known or ""


def key_of(entry: dict[str, Any]) -> str:
    """What names an entry."""
    given = " ".join(("", *entry.get("arguments", ()))) if entry.get("field") else ""
    return f"{entry['repository']}@{entry['commit'][:12]}:{entry['path']}{given}"


def audit(entry: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What the audit says of one script, next to what its reading says."""
    started = processor_seconds()
    try:
        with standing_in(entry, folder):
            report = el.audit_script(
                place_of(entry, folder),
                entry.get("arguments", ()),
                time_limit=120.0,
                memory_limit=4096,
                **entry.get("options", {}),
            )
    except InvalidValueError as refused:  # a text that is not Python
        report = AuditReport(entry["path"], "inconclusive", str(refused))
    return {
        "script": key_of(entry),
        "verdict": report.verdict,
        "summary": said_anywhere(report.summary, folder),
        "rule": report.rule,
        "findings": [
            [f.rule, f.severity, f.line, f.evidence, f.file.rsplit("/", 1)[-1].split("#")[-1]]
            for f in report.findings
        ],
        "statements": [statement_at(f.file, f.line) for f in report.findings],
        "conventions": [convention.name for convention in report.conventions],
        "residual": report.residual if report.residual == report.residual else None,
        "paths": report.paths,
        "exhaustive": report.exhaustive,
        "seconds": round(processor_seconds() - started, 1),
    }


def said_anywhere(summary: str, folder: Path) -> str:
    """A summary without the folders of this machine, which errors of a program name."""
    first = summary.partition("\n")[0].strip()
    return re.sub(
        rf"{re.escape(str(folder.resolve()))}/|/\S*/eligibility-audit-\w+/run/", "", first
    )


def statement_at(file: str, line: int) -> tuple[int, int]:
    """The first and the last line of the statement that ``line`` is in, if it holds no others."""
    path, _, cell = file.partition("#cell-")
    try:
        if cell:
            text, places = script_of(Path(path))
            shift = places.index((int(cell), line)) + 1 - line
        else:
            text, shift = Path(path).read_text(encoding="utf-8"), 0
        nodes = list(ast.walk(ast.parse(text)))
    except (OSError, SyntaxError, ValueError):  # a finding without a place
        return line, line
    spans = (
        (node.lineno - shift, (node.end_lineno or node.lineno) - shift)
        for node in nodes
        if isinstance(node, ast.stmt) and not hasattr(node, "body")
    )
    return next((span for span in spans if span[0] <= line <= span[1]), (line, line))


def keep_first(result: dict[str, Any]) -> None:
    """Write down what the audit says of a program that it has never met."""
    rows = json.loads(FIRST.read_text(encoding="utf-8"))
    if result["script"] not in {row["script"] for row in rows}:
        FIRST.write_text(json.dumps([*rows, result], indent=1) + "\n", encoding="utf-8")


def processor_seconds() -> float:
    """Of this process and of its children, for which the audit's own are ended."""
    close_servers()
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def agrees(entry: dict[str, Any], result: dict[str, Any]) -> bool:
    """Whether the audit says what the reading says."""
    found = sorted({rule for rule, *_ in result["findings"]})
    named = set(entry.get("conventions", ())) <= set(result["conventions"])
    return result["verdict"] == entry["verdict"] and found == sorted(entry["rules"]) and named


FAULTLESS = ("unbiased", "convention")
FAULTY = ("biased", "wrong-sign", "no-gradient")


def on_its_line(entry: dict[str, Any], result: dict[str, Any]) -> bool:
    """Whether the main fault is named within two lines of where it was read.

    Any line of a statement will do: an argument of a call over many lines is as good as its name.
    """
    file, line = entry["at"]
    lines = [(found[2], found[2]) for found in result["findings"]]
    return any(
        rule in entry["rules"] and found[-1] == file and first - 2 <= line <= last + 2
        for (rule, _, *found), (first, last) in zip(
            result["findings"], result.get("statements", lines), strict=True
        )
    )


def is_right(entry: dict[str, Any], result: dict[str, Any]) -> bool:
    """Whether the audit calls faulty what is, and nothing else."""
    return (entry["verdict"] in FAULTY) == (result["verdict"] in FAULTY)


def figures(rows: list[tuple[dict[str, Any], dict[str, Any]]]) -> dict[str, str]:
    """What is counted of the programs of a field test and of what the audit says of them."""
    decided = [row for row in rows if row[1]["verdict"] in FAULTLESS + FAULTY]
    right = sum(is_right(*row) for row in decided)
    faulty = [row for row in rows if "at" in row[0]]
    called = sum(result["verdict"] in FAULTY for _, result in faulty)
    named = sum(
        bool({rule for rule, *_ in result["findings"]} & set(entry["rules"]))
        for entry, result in faulty
    )
    placed = sum(on_its_line(*row) for row in faulty)
    sound = [row for row in rows if row[0]["verdict"] not in FAULTY]
    alarms = sum(result["verdict"] in FAULTY for _, result in sound)
    seconds = [result["seconds"] for _, result in rows]
    return {
        "decided": f"{len(decided)} of {len(rows)}",
        "verdict right, of those": f"{right} of {len(decided)}",
        "faulty programs called faulty": f"{called} of {len(faulty)}",
        "their main fault named / on its line (±2)": f"{named} / {placed} of {len(faulty)}",
        "programs without a fault called faulty": f"{alarms} of {len(sound)}",
        "seconds of the processor, median / longest": f"{statistics.median(seconds):.0f} / "
        f"{max(seconds):.0f}",
    }


def field_test(
    title: str,
    entries: list[dict[str, Any]],
    results: dict[str, dict[str, Any]],
    first: dict[str, dict[str, Any]],
) -> list[str]:
    """The section on programs that were read before the audit met them.

    Args:
        title: Its heading.
        entries: The readings.
        results: What the audit says.
        first: What it said when it met them, if that is known.
    """
    rows = [(entry, results[key_of(entry)]) for entry in entries if key_of(entry) in results]
    lines = [
        f"## {title}",
        "",
        f"{len(rows)} programs of {len({entry['repository'] for entry, _ in rows})} repositories, "
        "from courses, collections and notebooks, which nobody here had looked at. Each was read, "
        "and the reading was committed, before the audit met any of them; no reading was changed "
        "afterwards.",
        "",
    ]
    now = figures(rows)
    first = {key_of(entry): first[key_of(entry)] for entry, _ in rows if key_of(entry) in first}
    if first:
        before = figures([(entry, first[key_of(entry)]) for entry, _ in rows])
        lines += ["| | first | after the repairs that it asked for |", "|---|---|---|"]
        lines += [f"| {what} | {before[what]} | {now[what]} |" for what in now]
        lines += ["", "| script | as read | first | now | findings | by hand | s |"]
        lines += ["|---|---|---|---|---|---|---|"]
    else:
        lines += ["| | |", "|---|---|", *(f"| {what} | {now[what]} |" for what in now)]
        lines += ["", "| script | as read | as measured | findings | by hand | s |"]
        lines += ["|---|---|---|---|---|---|"]
    for entry, result in rows:
        earlier = f"{judged(entry, first[key_of(entry)])} | " if first else ""
        lines.append(
            f"| {link_to(entry)} | {entry['verdict']} | {earlier}{judged(entry, result)} "
            f"| {findings_of(result)} | {entry['checked']} | {result['seconds']:.0f} |"
        )
    overlooked = [entry for entry, _ in rows if "overlooked" in entry]
    if overlooked:
        lines += ["", "What the readings had overlooked, and the audit brought up:", ""]
        lines += [f"- {link_to(entry)}: {entry['overlooked']}" for entry in overlooked]
    kept = [entry for entry, _ in rows if "answer" in entry]
    if kept:
        lines += ["", "Where the audit does not follow the reading, which stays and counts:", ""]
        lines += [f"- {link_to(entry)}: {entry['answer']}" for entry in kept]
    missing = [entry for entry in entries if key_of(entry) not in results]
    if missing:
        lines += ["", "Read, and not run to an end of the audit:", ""]
        lines += [f"- {link_to(entry)}: {entry['checked']}{reason_of(entry)}" for entry in missing]
    return lines


def judged(entry: dict[str, Any], result: dict[str, Any]) -> str:
    """The verdict, with a mark if it is wrong."""
    verdict: str = result["verdict"]
    decides = verdict in FAULTLESS + FAULTY
    return verdict if not decides or is_right(entry, result) else f"{verdict} **wrong**"


def link_to(entry: dict[str, Any]) -> str:
    """The script's address and its arguments."""
    address = (
        f"https://github.com/{entry['repository']}/blob/{entry['commit']}/{entry['path']}"
    ).replace(" ", "%20")
    name = f"{entry['repository']} `{entry['path'].split('/')[-1]}` at `{entry['commit'][:7]}`"
    options = (f"--{k.replace('_', '-')} {v}" for k, v in entry.get("options", {}).items())
    given = " ".join((*options, *entry.get("arguments", ())))
    return f"[{name}]({address})" + (f" with `{given}`" if given else "")


def reason_of(entry: dict[str, Any]) -> str:
    """Why a program was read and not run."""
    return f". **Why not:** {entry['why_not']}" if "why_not" in entry else ""


def findings_of(result: dict[str, Any]) -> str:
    """The findings' names and lines."""
    found = ", ".join(
        f"`{rule}`{' (warning)' if severity == 'warning' else ''}, line {line}"
        for rule, severity, line, *_ in result["findings"]
    )
    return found or "–"


def page(entries: list[dict[str, Any]], results: dict[str, dict[str, Any]]) -> str:
    """The comparison as a page."""
    field = [entry for entry in entries if entry.get("field")]
    entries = [entry for entry in entries if not entry.get("field")]
    rows = [(entry, results[key_of(entry)]) for entry in entries if key_of(entry) in results]
    agree = sum(agrees(entry, result) for entry, result in rows)
    corrected = sum(entry.get("corrected", False) for entry, _ in rows)
    ran = sum(result["verdict"] != "inconclusive" for _, result in rows)
    lines = [
        "# Published programs",
        "",
        f"{len(rows)} scripts and notebooks that people published, run unmodified. Each was read "
        "line by line; the reading was written down, and the audit's verdict and rules are "
        f"compared with it: {agree} of {len(rows)} agree, and {ran} could be run to their first "
        f"update. {corrected} of the readings had overlooked a line, which the audit brought up, "
        "and were corrected. Made by `python -m benchmarks.audit_published FOLDER`; the scripts "
        "are not part of this project.",
        "",
        "| script | verdict | findings | conventions | by hand | agrees |",
        "|---|---|---|---|---|---|",
    ]
    for entry, result in rows:
        lines.append(
            f"| {link_to(entry)} | {result['verdict']} | {findings_of(result)} "
            f"| {', '.join(result['conventions']) or '–'} | {entry['checked']} "
            f"| {'yes' if agrees(entry, result) else '**no**'} |"
        )
    missed = [
        f"- `{key_of(entry)}`: {result['summary']}" for entry, result in rows
        if not agrees(entry, result) or result["verdict"] == "inconclusive"
    ]  # fmt: skip
    unknown = [
        f"- `{key_of(e)}`: {e['checked']}{reason_of(e)}"
        for e in entries
        if key_of(e) not in results
    ]
    if unknown:
        lines += ["", "Read by hand, and not run to an end of the audit:", "", *unknown]
    if missed:
        lines += [
            "",
            "What the audit says where it differs from the reading, or could not run:",
            "",
        ]
        lines += missed
    first = {row["script"]: row for row in json.loads(FIRST.read_text(encoding="utf-8"))}
    for number in sorted({int(entry["field"]) for entry in field}, reverse=True):
        test = [entry for entry in field if int(entry["field"]) == number]
        if any(key_of(entry) in results for entry in test):
            lines += ["", *field_test(TITLES[number], test, results, first)]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Audit, write the figures and the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="scripts whose name contains it")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--page", action="store_true", help="audit nothing")
    options = parser.parse_args()
    entries = json.loads(LIST.read_text(encoding="utf-8"))
    known = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else []
    results = {row["script"]: row for row in known}
    started = time.monotonic()
    for entry in entries:
        late = options.page or time.monotonic() - started > options.seconds
        if late or options.only not in key_of(entry):
            continue
        result = audit(entry, options.folder)
        results[key_of(entry)] = result
        if int(entry.get("field", 0)) > 1:
            keep_first(result)
        mark = "agrees" if agrees(entry, result) else "DIFFERS"
        print(mark, key_of(entry), result["summary"], file=sys.stderr, flush=True)
        ordered = [results[key_of(e)] for e in entries if key_of(e) in results]
        RESULTS.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(entries, results), encoding="utf-8")


if __name__ == "__main__":
    main()
