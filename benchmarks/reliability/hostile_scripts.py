"""Scripts that write, overwrite and delete what is not theirs, under `audit` and `explain`.

Each script gets a project of its own with a model, a database and notes, and somebody's folder
next to it. It attacks by Python, by libraries (SQLite, safetensors, numpy's memory maps), by other
processes, and by native code that goes round Python. Afterwards every file is compared. The same
scripts are run under each guard by itself, without the refusals of Python, and without any guard,
which shows that the attacks are attacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.reliability.row import Row, row_of
from tests.attack.hostile import ATTACKS, Attack, harmed, run_under, unguarded

TITLE = "Hostile scripts"
NOTHING = "nothing outside of the scratch folder is written or deleted"


def run() -> Iterator[Row]:
    """A row for each verb, for each guard by itself, and for none."""
    from eligibility import audit_script
    from eligibility.explanation.script import explain_script
    from eligibility.sandbox import COPY, GUARDS, guard_here, guards

    here = guard_here()
    # Where the kernel has no guard, a copy is all there is, and holds no native code.
    held = [attack for attack in ATTACKS if here != COPY or not attack.native]
    for verb, through in (("audit", audit_script), ("explain", explain_script)):
        yield _row(f"under `{verb}`", held, through, f"the guard here: {here}")
    for guard in GUARDS:
        attacks = [attack for attack in ATTACKS if guard != COPY or not attack.native]
        if guard != COPY and not guards.works(guard):
            yield Row(f"under the guard {guard} by itself", 0, 0, NOTHING, (), "not on this kernel")
            continue
        note = "those in Python only" if guard == COPY else ""
        yield _row(f"under the guard {guard} by itself", attacks, run_under(guard), note)
    # A mount may be forbidden on this machine anyway.
    attacks = [attack for attack in ATTACKS if "mount" not in attack.name]
    harmless = [attack.name for attack in attacks if not harmed(attack, unguarded)]
    yield row_of(
        "without a guard",
        "harm is done",
        [f"{attack.name}: nothing" * (attack.name in harmless) for attack in attacks],
    )


def _row(under: str, attacks: list[Attack], through: Callable[[Path], object], note: str) -> Row:
    outcomes = []
    for attack in attacks:
        harm = harmed(attack, through)
        outcomes.append(f"{attack.name}: {', '.join(harm)}" if harm else "")
    native = sum(attack.native for attack in attacks)
    parts = [note, f"{native} of them by native code or descriptors" if native else ""]
    return row_of(under, NOTHING, outcomes, "; ".join(filter(None, parts)))
