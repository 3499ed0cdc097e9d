"""The page docs/audit/language.md, made from the results and the readings; nothing is run here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.language.entry import Entry

Record = Mapping[str, Any]

_HEAD = """# Trainers of language models

What the losses of {projects} published trainers compute: {today} public functions of today
(loss types, advantage estimators, aggregation modes, KL estimators), and {faults} changes that
a thread or a commit describes, before and after; where both states are of one commit, they are
two options of it. Each was read first; the reading was written down before the first run, and
is printed next to the audit's verdict. {agree} of {run} agree{failed}. Made by `python -m
benchmarks.audit_language FOLDER` with `el.audit_token_loss`, which runs every batch of a tiny
language (512 batches at most here), so the figures are exact up to the precision in which a
library computes. The sources are not a part of this project.

How to read a row. **named**: what the audit found; a convention is a choice with a name, and
the bias that it alone causes here. **E[g]**: the expected gradient in the named directions; any
positive multiple of the reward's is right. **off**: the part of it that is not along the
wanted gradient, relative. Losses are given leave-one-out advantages, and on-policy answers unless
the row says of whom they are; β = 0.3 where there is a KL; advantage and KL estimators are put
into a loss without a bias of its own. Off policy, the bias of what becomes of far ratios is that on
weights without any other. What each choice does, and why, is in
[the chapter](../theory/policy_gradient_of_a_language_model.md).
"""

_NOTES = """
## Where they disagree

- **The audit does not name** NeMo-RL #1423: the deviation of the other answers is a rounding error
  where these have the same reward, and the weights are divided by it. It finds that they are off.
- **It names something else** for NeMo-RL's k2 times a ratio of 1 that has a gradient,
  `squared-log-ratio`, and it is right: k2 does not estimate the divergence, and its value is
  differentiated as well, so it is not k2's gradient.
- **The reading had overlooked** that verl's `k3+` raises at this commit, because the function that
  it calls does not know the name; that torchtune's `masked_sum` adds up the whole batch when it is
  given no axis, so GRPOCompletionLoss has one ratio for all answers: with leave-one-out advantages
  it has no gradient, and with a KL no part of it follows the rewards (`returns-unused`).
- **A matter of taste**: verl's OPO, whose baseline has one's own length in it.
- **Not visible in a loss**: old log-probabilities that are not refreshed. They are given to it.
"""

_TABLE = """
| function | verdict | named | E[g] | off | by hand | agrees |
|---|---|---|---|---|---|---|
"""


def page(
    entries: Sequence[Entry],
    records: Sequence[Record | None],
    readings: Mapping[str, Mapping[str, Any]],
    agrees: Callable[[Any, Any], bool],
) -> str:
    """The page: a table of today's functions, one of faults, and what disagreed."""
    pairs = [(entry, record) for entry, record in zip(entries, records, strict=True) if record]
    keyed = [(entry, record, readings[record["entry"]]) for entry, record in pairs]
    ran = [triple for triple in keyed if triple[1]["verdict"] != "error"]
    today = [triple for triple in keyed if triple[0].state == "today"]
    faults = [triple for triple in keyed if triple[0].state != "today"]
    failed = len(keyed) - len(ran)
    head = _HEAD.format(
        projects=len({entry.project.repository for entry, _, _ in keyed}),
        today=len(today),
        faults=len({entry.name for entry, _, _ in faults}),
        agree=sum(agrees(record, reading) for _, record, reading in ran),
        run=len(ran),
        failed=f"; {failed} could not be run" if failed else "",
    )
    sections = [head, _commits(keyed), "\n## Today\n", _TABLE]
    sections += [_row(*triple, agrees) for triple in today]
    sections += ["\n## Known faults, before and after\n", _TABLE]
    sections += [_row(*triple, agrees) for triple in faults]
    sections.append(_NOTES)
    return "".join(sections)


def _commits(keyed: Sequence[tuple[Entry, Record, Any]]) -> str:
    projects: dict[str, str] = {}
    for entry, _, _ in keyed:
        projects.setdefault(entry.project.repository, entry.project.commit)
    listed = ", ".join(
        f"[{name} `{commit}`](https://github.com/{name}/tree/{commit})"
        for name, commit in projects.items()
    )
    return f"\n\nToday is: {listed}.\n"


def _row(
    entry: Entry, record: Record, reading: Mapping[str, Any], agrees: Callable[[Any, Any], bool]
) -> str:
    name = entry.name
    if entry.thread:
        name = f"[{name}]({entry.thread}), {entry.state}, `{entry.revision}`"
    if record["verdict"] == "error":
        cells = [name, "not run", _escaped(record["error"][:120]), "", "", reading["why"], "–"]
    else:
        cells = [
            name,
            record["verdict"],
            _named(record),
            _components(record),
            f"{record['residual']:.1%}",
            _wanted(reading),
            "yes" if agrees(record, reading) else "**no**",
        ]
    return "| " + " | ".join(cells) + " |\n"


def _named(record: Record) -> str:
    findings = [
        f"`{rule}`" if severity == "fault" else f"`{rule}` ({severity})"
        for rule, severity, _ in record["findings"]
    ]
    conventions = [
        f"{name} {bias:.1%}" if bias else name
        for name, bias in record["conventions"]
        if name not in {"centred", "leave-one-out"}
    ]
    return ", ".join(findings + conventions) or "–"


def _components(record: Record) -> str:
    terms = [f"{value:.3g} {name}" for name, value in record["components"].items() if value]
    return ", ".join(terms) or "0"


def _wanted(reading: Mapping[str, Any]) -> str:
    names = ", ".join([f"`{rule}`" for rule in reading["rules"]] + reading["conventions"])
    return f"{reading['verdict']}{': ' + names if names else ''}. {_escaped(reading['why'])}"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
