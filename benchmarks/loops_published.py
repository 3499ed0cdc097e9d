"""Training loops that people publish, read by hand first, then audited.

    python -m benchmarks.loops_published FOLDER     # FOLDER/owner+name: a git directory of each

``benchmarks/loops_published.json`` holds the reading, which was committed before the first run; the
results go to ``benchmarks/results/loops_published.json`` and into
``docs/audit/published_language.md``. Nothing of theirs is kept.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import statistics
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from eligibility.audit.scripts import audit_script

REMARKS = (
    "Readings were committed before the first run of each program. The first eleven had been run "
    "before the audit was repaired for them; of the nine that came later, 04_ppo_clipped.py first "
    "came out without `clipped`, and the audit was repaired before the others were judged. What "
    "differs: the reading of nano-rl's GRPO "
    "overlooked that later updates are clipped; a top-p of 0.95 cuts nothing of the probe's two "
    "tokens (Kirill2187); tiny-grpo leaves out batches whose loss is not finite, so its "
    "gradients are finite; and nikhilkuniyil's program scores its answers after another text than "
    "it draws them after, where the audit stops. Siyuan-Harry's, whose rewards are whitened with a "
    "divergence in them, was "
    "read as `unexplained`, and has its name now. Where "
    "`top_k` is not given, `generate` draws from the 50 likeliest tokens. The readings overlooked "
    "this, and so did the audit, which calls it `behaviour-not-scored` now. All programs of the "
    "four tables were run again when it had learned to measure this."
)
_FOURTH = (
    "Readings were committed before the first run. What is left: ppo_from_scratch.py scores the "
    "prompt as well, and with tokens that it has not drawn no answer is known; how many answers "
    "run_pipeline.py trains on depends on the answers; of main.py's sums of several "
    "gradients there is no rule; and where no log-probability has a gradient no reward is found. "
    "In minigrpo.py padding is the end for the tokenizer that was read, and not for the probe's. "
    "grpo_train.py, whose 16 times 16 answers are made small in its YAML file, has two of the "
    "three faults that were read; the 0.001 that it adds to an answer's length hides the third, "
    "and of its second update no rule is found, so `clipped` is missing."
)
_SIXTH = (
    "Readings were committed before the first run. What is left: main_rloo.py pads prompts on the "
    "right, and what it scores are not the tokens that were drawn. Of the second update of "
    "grpo_train_from_scratch.py no rule is found, so `clipped` is missing; and for a model without "
    "a known name padding is a token of its own in the probe, so the end is not dropped there. "
    "What differs otherwise: the two forks of nanoGRPO give answers the rewards of other ones, and "
    "score without an attention mask what they drew with one. The readings called that "
    "`groups-mixed` and `padding-counted`; the audit calls the first "
    "`reward-of-another-answer`, a fault that it did not know before, and the second "
    "`behaviour-not-scored`, as the padding changes the probabilities and gets no gradient. "
    "Elsewhere `clipped`, which three readings name, is missing: it shows only in a second update "
    "on the same answers, and none was seen there. Of train_ppo.py the reading names the "
    "whitening alone, and the audit also what it consists of (`centred`, `groups-mixed`) and the "
    "ratio of the second update."
)
_SEVENTH = (
    "Readings were committed before the first run. The column `first` is the state before the "
    "repairs of this table; sandeshjung's program had been refused before that, since it encodes "
    "its answers again, and the audit had been repaired for it. What differs: the reading of "
    "Zzzft's main.py overlooked that its reward.py mixes tabs and spaces, so that Python refuses "
    "it. The rlhf-book needs the package reasoning_gym. In leo-bjpark's train.py, which was "
    "refused at first, no rule explains what is left besides the draw, so that its divergence has "
    "no name. A module that is not installed, and a script that trains nothing, "
    "took minutes to be reported, as they were run again with other numbers in their text; now "
    "they are run once. lamng3's ends before its assertion, as the 8 rows of data that the "
    "benchmark gives it make no batch of 32."
)
FIELD_TESTS = {
    4: ("A fourth field test", _FOURTH),
    6: ("A sixth field test", _SIXTH),
    7: ("A seventh field test", _SEVENTH),
}
ROOT = Path(__file__).parents[1]
READING = ROOT / "benchmarks/loops_published.json"
RESULTS = ROOT / "benchmarks/results/loops_published.json"
FIRST = ROOT / "benchmarks/results/loops_published_first.json"


def audited(checkout: Path, entry: dict[str, Any]) -> dict[str, Any]:
    """What the audit says of a script, in a copy of its repository."""
    folder, inside, _ = entry["path"].partition("/")  # some files elsewhere may be missing
    command = ["git", "-C", str(checkout), "archive", entry["commit"]]
    command += ["--", *entry.get("files", [folder if inside else "*.py"])]
    archive = subprocess.run(command, capture_output=True, check=True).stdout
    with tempfile.TemporaryDirectory() as copied:
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(copied, filter="data")
        for name, rows in entry.get("rows", {}).items():  # data that a snapshot leaves out
            text = "".join(f"{json.dumps(row)}\n" for row in rows * 8)
            Path(copied, name).parent.mkdir(exist_ok=True)
            Path(copied, name).write_text(text, encoding="utf-8")
        report = audit_script(
            Path(copied) / entry["path"], entry.get("arguments", ()), time_limit=30.0
        )
        summary = report.summary.replace(copied, "")
    return {
        "verdict": report.verdict,
        "biasing": sorted(c.name for c in report.conventions if c.bias and c.bias > 1e-4),
        "faults": sorted(f.rule for f in report.findings if f.severity == "fault"),
        "residual": None if math.isnan(report.residual) else report.residual,
        "summary": summary,
        "notes": [note for note in report.notes if note.startswith("reduced")],
        "seconds": round(report.seconds, 1),
    }


def lines() -> list[str]:
    """The section of the page."""
    if not RESULTS.exists():
        return []
    reading = json.loads(READING.read_text(encoding="utf-8"))
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    every = [(entry, results[_name(entry)]) for entry in reading if _name(entry) in results]
    known = [row for row in every if "field" not in row[0]]
    as_read = sum(_said(entry) == _said(row) for entry, row in known)
    made = [
        "## Loops by hand",
        "",
        f"{len(known)} scripts with a training loop of their own on transformers' `generate`, from "
        f"public repositories, read by hand before the first run. {as_read} of {len(known)} came "
        "out as they had been read; those that did not are shown as they are.",
        "",
        "| script | read as | audited as | bias | remark of the reading |",
        "|---|---|---|---:|---|",
    ]
    for entry, row in known:
        bias = "–" if row["residual"] is None else f"{row['residual']:.1%}"
        made.append(
            f"| {_link(entry)} | {_said(entry)} | {_found(entry, row)} | {bias} "
            f"| {entry['reading']} |"
        )
    made += ["", REMARKS, ""]
    for number, (title, remarks) in FIELD_TESTS.items():
        rows = [row for row in every if row[0].get("field") == number]
        made += [f"### {title}", "", *_field(rows), "", remarks, ""]
    return made


def _field(rows: list[tuple[dict[str, Any], dict[str, Any]]]) -> list[str]:
    """The loops that were read and committed before the audit met them or anything of theirs."""
    first = json.loads(FIRST.read_text(encoding="utf-8"))
    before = [(entry, first[_name(entry)]) for entry, _ in rows]
    made = ["| | first | after the repairs that it asked for |", "|---|---|---|"]
    made += [f"| {what} | {was} | {now} |" for (what, was), (_, now) in zip(
        _figures(before), _figures(rows), strict=True
    )]  # fmt: skip
    made += ["", "| script | read as | first | now | s | remark of the reading |"]
    made += ["|---|---|---|---|---:|---|"]
    for entry, row in rows:
        earlier = _found(entry, first[_name(entry)])
        made.append(
            f"| {_link(entry)} | {_said(entry)} | {earlier} | {_found(entry, row)} "
            f"| {row['seconds']:.0f} | {entry['reading']} |"
        )
    return made


def _figures(rows: list[tuple[dict[str, Any], dict[str, Any]]]) -> list[tuple[str, str]]:
    decided = [row for row in rows if row[1]["verdict"] not in ("inconclusive", "unexplained")]
    sound = ("convention", "unbiased")
    faulty = [row for row in rows if row[0]["faults"]]
    right = sum((a["verdict"] in sound) == (b["verdict"] in sound) for a, b in decided)
    named = sum(bool({*entry["faults"]} & {*row["faults"]}) for entry, row in faulty)
    called = sum(row["verdict"] not in (*sound, "inconclusive", "unexplained") for _, row in faulty)
    seconds = sorted(row["seconds"] for _, row in rows)
    return [
        ("decided", f"{len(decided)} of {len(rows)}"),
        ("verdict right, of those", f"{right} of {len(decided)}"),
        ("faulty loops called faulty", f"{called} of {len(faulty)}"),
        ("a fault of theirs named", f"{named} of {len(faulty)}"),
        ("seconds, median / longest", f"{statistics.median(seconds):.0f} / {seconds[-1]:.0f}"),
    ]


def _link(entry: dict[str, Any]) -> str:
    link = f"https://github.com/{entry['repository']}/blob/{entry['commit']}/{entry['path']}"
    return f"[{_name(entry)}]({link})"


def _found(entry: dict[str, Any], row: dict[str, Any]) -> str:
    mark = "" if _said(entry) == _said(row) else "**≠** "
    short = " ".join(row["summary"].partition("; audit its loss")[0].split())
    return mark + (f"refused: {short}" if row["verdict"] == "inconclusive" else _said(row))


def _name(entry: dict[str, Any]) -> str:
    return f"{entry['repository']}: {entry['path']}"


def _said(row: dict[str, Any]) -> str:
    named = ", ".join([*row["faults"], *row["biasing"]])
    return f"{row['verdict']}: {named}" if named else str(row["verdict"])


def main() -> None:
    """Run all, and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--only", nargs="*", default=[""], help="those whose name has one of these")
    arguments = parser.parse_args()
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    for entry in json.loads(READING.read_text(encoding="utf-8")) if arguments.folder else []:
        name = _name(entry)
        if any(part in name for part in arguments.only):
            checkout = arguments.folder / entry["repository"].replace("/", "+") / "repo"
            results[name] = audited(checkout, entry)
            print(name, results[name], flush=True)
            RESULTS.write_text(
                json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
            )
    from benchmarks.trl_published import write_page

    write_page()


if __name__ == "__main__":
    main()
