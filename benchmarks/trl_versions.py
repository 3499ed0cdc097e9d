"""What older releases of TRL compute by default, side by side.

    python -m benchmarks.trl_versions FOLDER    # FOLDER/0.14.0, …: each an environment's packages
    python -m benchmarks.trl_versions --page    # only the table, from the last measurement

Each folder was made by ``pip install --target FOLDER/0.14.0 trl==0.14.0 transformers==4.48.3 …``
with releases of that time; it stands before the packages of this environment. The results go to
``benchmarks/results/trl_versions.json`` and into ``docs/audit/trl_options.md``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from eligibility.files import write_atomically

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks/results/trl_versions.json"
# Each is tried where the release knows the options.
CONFIGURATIONS = {
    "as it comes": "",
    "beta 0": "beta=0.0",
    "scale_rewards=False": "beta=0.0, scale_rewards=False",
    "dr_grpo, unscaled": 'beta=0.0, loss_type="dr_grpo", scale_rewards=False',
    "beta 0.5, unscaled": 'beta=0.5, loss_type="dr_grpo", scale_rewards=False',
    "temperature 0.7, unscaled": "beta=0.0, temperature=0.7, scale_rewards=False",
}
NOTES = (  # each was read in the release's source after the audit had brought it up
    "- 0.14.0 scores answers without an attention mask and without the temperature that they were "
    "sampled with: log π depends on the padding before a short prompt.",
    "- 0.15.2 has the mask, and no temperature yet (0.9 by default).",
    "- 0.22.1 has the condition of `scale_rewards` the wrong way round: by default nothing is "
    "divided, and `scale_rewards=False` divides by the group's deviation (`grpo_trainer.py`, line "
    "1414).",
)
_ONE = """
import json, sys
import trl
from benchmarks.trl_options import SCRIPT, record_of
from eligibility.audit.trainers.verdict import report_of
for name in ("GRPOTrainer", "GRPOConfig"):
    getattr(trl, name)
for name, options in json.loads(sys.argv[1]).items():
    record = record_of(SCRIPT.format(kind="GRPO", options=options, rewards="reward"), (), 2)
    report = report_of(record, name)
    data = json.loads(report.to_json())
    kept = ("verdict", "summary", "residual", "rule", "components", "convention_biases")
    print(json.dumps({"version": trl.__version__, "name": name, "seconds": round(record.seconds, 1),
        "faults": [f["rule"] for f in data["findings"]], **{k: data[k] for k in kept}}), flush=True)
"""


def measured(folder: Path) -> list[dict[str, Any]]:
    """The configurations under one release."""
    path = os.pathsep.join([str(folder), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-c", _ONE, json.dumps(CONFIGURATIONS)],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if not rows:
        why = done.stderr.strip().splitlines()[-1:] or ["it says nothing"]
        print(folder.name, "does not run:", *why, flush=True)
    return rows


def keep(rows: list[dict[str, Any]]) -> None:
    """Put the rows of a release among those of others, in place of its earlier ones."""
    known = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else []
    measured_now = {row["version"] for row in rows}
    rows = rows + [row for row in known if row["version"] not in measured_now]
    rows.sort(key=lambda row: tuple(map(int, row["version"].split("."))))
    write_atomically(RESULTS, json.dumps(rows, indent=1) + "\n")


def lines() -> list[str]:
    """A table of what was measured: a row a configuration, a column a release."""
    if not RESULTS.exists():
        return []
    rows = json.loads(RESULTS.read_text(encoding="utf-8"))
    versions = list(dict.fromkeys(row["version"] for row in rows))
    found = {(row["version"], row["name"]): row for row in rows}
    made = [
        "## Releases side by side",
        "",
        "The same script with older releases of TRL, each with the transformers of its time. "
        "Biases are over two policies; most rows above use one.",
        "",
        *NOTES,
        "",
        f"| configuration | {' | '.join(versions)} |",
        f"|---|{'---|' * len(versions)}",
    ]
    for name in CONFIGURATIONS:
        cells = [_cell(found.get((version, name))) for version in versions]
        made.append(f"| {name} | {' | '.join(cells)} |")
    return [*made, ""]


def _cell(row: dict[str, Any] | None) -> str:
    if row is None or row["verdict"] == "inconclusive":
        unknown = row is not None and "unexpected keyword" in row["summary"]
        return "no such option" if unknown else "–"
    biases = row["convention_biases"].items()
    named = [f"{name} {bias:.1%}" for name, bias in biases if bias]
    named += [f"**{rule}**" for rule in row["faults"]]
    exact = f"{row['components'].get('reward', 0.0):.4g} × ∇E[R]"
    return f"{row['residual']:.1%}: {', '.join(named)}" if named else exact


def main() -> None:
    """Measure, and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--page", action="store_true", help="only write the table again")
    arguments = parser.parse_args()
    if not arguments.page:
        for folder in arguments.folder.iterdir():
            if folder.name.count(".") == 2:
                keep(measured(folder))
                print(folder.name, "measured", flush=True)
    from benchmarks.trl_options import write_page

    write_page()


if __name__ == "__main__":
    main()
