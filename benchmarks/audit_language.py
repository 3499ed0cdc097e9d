"""Audits public losses of trainers of language models, and compares with a reading by hand.

    python -m benchmarks.audit_language FOLDER [--only TEXT] [--page]

FOLDER holds bare git repositories as ``owner+name`` (or ``owner+name/repo``); none of them is a
part of this project. The entries (``benchmarks/language``) name commits and functions; the readings
(``benchmarks/language/readings.json``) were written before the first run. A commit's package is
extracted into a cache folder, and its entries run in a child process, where packages that are not
installed have stand-ins. About 2 s of processor time an entry; ``--page`` only writes the page.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import json
import os
import re
import subprocess
import sys
import time
import traceback
import types
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks.language.entry import Entry
from benchmarks.language.loading import forget, load

ROOT = Path(__file__).parents[1]
PATHS = 1000  # as many batches at most: one language instead of the default's four
READINGS = ROOT / "benchmarks" / "language" / "readings.json"
RESULTS = ROOT / "benchmarks" / "results" / "audit_language.json"
PAGE = ROOT / "docs" / "audit" / "language.md"
CACHE = (
    Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "eligibility-audit-language"
)


def entries() -> tuple[Entry, ...]:
    """All entries, in the order of the page."""
    from benchmarks.language import (
        huggingface_entries,
        off_policy_entries,
        other_entries,
        ray_entries,
        small_entries,
        verl_entries,
    )

    parts = (
        verl_entries,
        huggingface_entries,
        other_entries,
        ray_entries,
        off_policy_entries,
        small_entries,
    )
    return tuple(entry for part in parts for entry in part.ENTRIES)


def key_of(entry: Entry) -> str:
    """What names an entry in the readings and results."""
    return f"{entry.name} [{entry.state}]"


def git(folder: Path, entry: Entry, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Git on the bare repository of an entry."""
    place = folder / entry.project.repository.replace("/", "+")
    place = place / "repo" if (place / "repo").exists() else place
    command = ["git", "--git-dir", str(place), *arguments]
    return subprocess.run(command, capture_output=True, check=True)


def extracted(folder: Path, entry: Entry) -> Path:
    """The package's files at the entry's commit, in the cache."""
    revision = git(folder, entry, "rev-parse", entry.revision).stdout.decode().strip()
    place = CACHE / entry.project.repository.replace("/", "+") / revision[:12]
    if not place.exists():
        part = place.with_suffix(".part")
        part.mkdir(parents=True, exist_ok=True)
        package = next(iter(entry.project.modules.values())).partition(".")[0]
        inside = os.path.normpath(f"{entry.project.package_root}/{package}")
        archive = git(folder, entry, "archive", revision, "--", inside).stdout
        subprocess.run(["tar", "x", "-C", str(part)], input=archive, check=True)
        part.rename(place)
    return place


def run(entry: Entry, folder: Path) -> dict[str, Any]:
    """The audit of one entry, as a record; an error is a record too."""
    started = time.monotonic()
    record: dict[str, Any] = {"entry": key_of(entry), "commit": entry.revision}
    try:
        modules = loaded(entry, folder)
        from eligibility.audit.language.token_loss import audit_token_loss

        report = audit_token_loss(
            lambda batch: entry.loss(modules, batch), **{"max_paths": PATHS} | entry.options
        )
    except Exception as error:  # whatever somebody else's loss raises is its entry in the table
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(last.filename).name}:{last.lineno}"
        return record | {"verdict": "error", "error": f"{type(error).__name__}: {error} ({where})"}
    return record | {
        "verdict": report.verdict,
        "summary": report.summary,
        "findings": [[f.rule, f.severity, f.evidence] for f in report.findings],
        "conventions": [[c.name, c.bias] for c in report.conventions],
        "components": {name: round(value, 6) for name, value in report.components.items()},
        "invariances": {name: float(f"{v:.3g}") for name, v in report.invariances.items() if v},
        "residual": float(f"{report.residual:.3g}"),
        "paths": report.paths,
        "seconds": round(time.monotonic() - started, 1),
    }


def loaded(entry: Entry, folder: Path) -> SimpleNamespace:
    """The modules that an entry's loss is given."""
    place = extracted(folder, entry) / entry.project.package_root
    for name, values in entry.project.stand_ins.items():
        module = types.ModuleType(name)
        module.__dict__.update(values)
        top = name.partition(".")[0]
        if not any(known.startswith(f"{top}.") for known in entry.project.modules.values()):
            sys.modules.setdefault(top, types.ModuleType(top))
        sys.modules[name] = module
    return SimpleNamespace(
        **{
            short: load(place, module, entry.project.executed, entry.project.replaced)
            for short, module in entry.project.modules.items()
        }
    )


def work(numbers: list[int], folder: Path) -> None:
    """A child: the records of some entries, a line each; one commit of a package at a time."""
    every = entries()
    CACHE.mkdir(parents=True, exist_ok=True)
    os.chdir(CACHE)  # some packages make folders for their logs when they are imported
    lines = os.fdopen(os.dup(1), "w")
    for batch in batches(numbers):
        with quiet():
            for number in batch:
                print(json.dumps(run(every[number], folder)), file=lines, flush=True)
        forget({module.partition(".")[0] for module in every[batch[0]].project.modules.values()})


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """What the packages print is not a record."""
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
        yield


def batches(chosen: list[int]) -> list[list[int]]:
    """Entries that can share a process: of one repository, commit and set of modules."""
    every = entries()
    groups: dict[tuple[Any, ...], list[int]] = {}
    for number in chosen:
        project = every[number].project
        key = (project.repository, every[number].revision, tuple(project.modules.values()))
        groups.setdefault(key, []).append(number)
    return list(groups.values())


def save(known: dict[str, dict[str, Any]]) -> None:
    """Write the results so far, in the order of the entries."""
    ordered = [known[key_of(entry)] for entry in entries() if key_of(entry) in known]
    RESULTS.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def audit(
    chosen: list[int], folder: Path, jobs: int, python: str, known: dict[str, dict[str, Any]]
) -> list[dict[str, Any]]:
    """The records of the chosen entries, from ``jobs`` processes; saved as they come."""
    every = entries()
    shares: list[list[int]] = [[] for _ in range(jobs)]
    for batch in sorted(batches(chosen), key=len, reverse=True):
        min(shares, key=len).extend(batch)

    def child(numbers: list[int]) -> list[dict[str, Any]]:
        command = [python, "-m", "benchmarks.audit_language", str(folder), "--child"]
        environment = os.environ | {"TORCHDYNAMO_DISABLE": "1", "OMP_NUM_THREADS": "1"}
        environment["PYTHONPATH"] = str(ROOT / "src")
        with subprocess.Popen(
            [*command, *map(str, numbers)],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            records = []
            for line in process.stdout:
                if line.startswith("{"):
                    records.append(json.loads(line))
                    known[records[-1]["entry"]] = records[-1]
                    save(known)
        done = {record["entry"] for record in records}
        missing = [key_of(every[n]) for n in numbers if key_of(every[n]) not in done]
        ended = f"the process ended with {process.returncode}"
        return records + [{"entry": m, "verdict": "error", "error": ended} for m in missing]

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        parts = pool.map(child, [share for share in shares if share])
        return [record for part in parts for record in part]


def agrees(record: dict[str, Any], reading: dict[str, Any]) -> bool:
    """Every rule and convention of the reading is told; without a rule, its verdict too."""
    told = {finding[0] for finding in record.get("findings", [])}
    named = {convention[0] for convention in record.get("conventions", [])}
    return (
        (bool(reading["rules"]) or record["verdict"] == reading["verdict"])
        and set(reading["rules"]) <= told
        and set(reading["conventions"]) <= named
    )


def main() -> None:
    """Read the arguments, run what is asked for, write results and page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="entries whose name contains this")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument(
        "--python", default=sys.executable, help="of an environment with a project's dependencies"
    )
    parser.add_argument("--page", action="store_true", help="only write the page")
    parser.add_argument("--child", nargs="+", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        work(options.child, options.folder.absolute())
        return
    every = entries()
    known = {r["entry"]: r for r in json.loads(RESULTS.read_text())} if RESULTS.exists() else {}
    if not options.page:
        chosen = [n for n, e in enumerate(every) if re.search(options.only, key_of(e))]
        for record in audit(chosen, options.folder.absolute(), options.jobs, options.python, known):
            known[record["entry"]] = record
        save(known)
    from benchmarks.language.page import page

    readings = json.loads(READINGS.read_text())
    text = page(every, [known.get(key_of(entry)) for entry in every], readings, agrees)
    PAGE.write_text(text, encoding="utf-8")
    print(text[: text.index("\n\n|")])


if __name__ == "__main__":
    main()
