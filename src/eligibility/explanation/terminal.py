"""The record in a terminal: what the reader wants first comes first. Nothing is computed here."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table as Grid
from rich.text import Text

from eligibility.explanation.elements import (
    Check,
    Edge,
    Expectation,
    Leaf,
    RuleStatement,
    Source,
    Step,
    Table,
)
from eligibility.explanation.wording import entry, summary

if TYPE_CHECKING:
    from eligibility.explanation.derivation import Explanation
    from eligibility.explanation.script import BackwardCall, ScriptExplanation

# The most numbers of a local derivative that are shown with its formula.
_SHORT = 4
# The sections of an explanation, and those that are shown of a script if nothing else is asked for.
FULL = ("table", "why", "steps", "rule", "checks", "expected", "notes")
BRIEF = ("table", "why", "rule", "checks", "expected", "notes")
_HEADINGS = {
    "why": "WHY", "steps": "STEPS", "rule": "RULE", "checks": "CHECKS",
    "expected": "YOU EXPECTED", "notes": "NOTES",
}  # fmt: skip
# Rows of a table in the short form.
_ROWS = 6
# The most leaves, and summands of a leaf, that are shown.
_LEAVES, _SUMMANDS = 12, 6
# The most operations of a graph that shows the inside of what is folded.
_UNFOLDED = 14


def to_text(renderable: RenderableType, width: int) -> str:
    """What Rich would print, without colour, no line longer than ``width``."""
    stream = io.StringIO()
    console = Console(file=stream, width=width, color_system=None, highlight=False)
    console.print(renderable)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def render_script(script: ScriptExplanation, sections: Sequence[str] = BRIEF) -> RenderableType:
    """The missing gradients of a script, then its backward passes.

    Of several passes the short form shows one, that of a known distribution if there is one, and
    names the others.
    """
    missing = [f"{m.place}: {m.name}.grad is None: {m.reason}" for m in script.missing]
    parts = _section("WHY .grad IS None", map(Text, missing))
    chosen = list(script.calls)
    if sections == BRIEF and len(chosen) > 1:
        known = [call for call in chosen if call.explanation.rules]
        chosen = (known or chosen)[:1]
    for call in chosen:
        where = call.place or "never called; it would give"
        times = f", called {call.times} times, the first one" if call.times > 1 else ""
        title = Text(f"{where}{times}: {call.code}", style="bold")
        parts += [Rule(title, align="left", style="dim"), render(call.explanation, sections)]
    others = [call for call in script.calls if call not in chosen]
    parts += _section("OTHER BACKWARD PASSES", map(_other, others))
    parts += _section("NOTES", map(Text, script.notes))
    if script.failure:
        parts += [Text(), *(Text(line) for line in script.failure.splitlines())]
    if not (script.calls or script.missing or script.failure):
        parts.append(Text("The script computes nothing that has a gradient."))
    if sections == BRIEF and script.calls:
        parts.append(Text("--full shows every step and number, --html FILE makes a page.", "dim"))
    return Group(*parts)


def _other(call: BackwardCall) -> Text:
    """A backward pass that is not shown, and how to ask for it."""
    option = "" if call.cell or not call.line else f"   (--line {call.line})"
    return Text(f"{call.place or 'never called'}: {call.code}{option}")


def render(explanation: Explanation, sections: Sequence[str] = FULL) -> RenderableType:
    """The explanation for a Rich console of any width."""
    parts: list[RenderableType] = [Text(explanation.title, style="bold")]
    is_short = sections == BRIEF
    if "table" in sections:
        parts += _tables(explanation, is_short)
    bodies: dict[str, Iterable[RenderableType]] = {
        "why": map(Text, explanation.why),
        "steps": _steps(explanation) if "steps" in sections else [],
        "rule": [item for rule in _rules(explanation, is_short) for item in _rule(rule, is_short)],
        "checks": _checks(explanation.checks, is_short),
        "expected": map(_expectation, explanation.expected),
        "notes": map(Text, explanation.notes),
    }
    for name, body in bodies.items():
        parts += _section(_HEADINGS[name], body) if name in sections else []
    return Group(*parts)


def _rules(explanation: Explanation, is_short: bool) -> Sequence[RuleStatement]:
    """The closed forms; in the short form those of distributions, if there are any."""
    of_distributions = [rule for rule in explanation.rules if "linear layer" not in rule.name]
    return (of_distributions or explanation.rules)[:3] if is_short else explanation.rules


def _tables(explanation: Explanation, is_short: bool) -> list[RenderableType]:
    """Every table, with the name of its leaf where there are several; or the first two, cut."""
    several = len(explanation.tables) > 1
    if not is_short:
        return [_table(table, several) for table in explanation.tables]
    shown, rest = explanation.tables[:2], explanation.tables[2:]
    found = [_table(shortened(table), several) for table in shown]
    named = ", ".join(table.title for table in rest)
    return found + ([Text(f"  also: {named}", style="dim")] if rest else [])


def shortened(table: Table) -> Table:
    """The rows that were drawn, then those with the largest numbers, at most a few."""
    size = len(table.rows)
    if size <= _ROWS:
        return table
    by_size = next((c for c in table.columns if c.role == "probability"), table.columns[-1])
    weight = [abs(v) if v is not None else 0.0 for v in by_size.values]
    in_order = table.axis in ("step", "outcome")
    others = [k for k in range(size) if k not in table.selected]
    if not in_order:
        others.sort(key=lambda k: -weight[k] if k < len(weight) else 0.0)
    kept = ([*table.selected, *others])[:_ROWS]
    columns = tuple(replace(c, values=tuple(c.at(k) for k in kept)) for c in table.columns)
    selected = tuple(i for i, k in enumerate(kept) if k in table.selected)
    rows = tuple(table.rows[k] for k in kept)
    omitted = table.omitted + size - len(kept)
    return replace(table, rows=rows, columns=columns, selected=selected, omitted=omitted)


def _section(title: str, lines: Iterable[RenderableType]) -> list[RenderableType]:
    body = list(lines)
    heading = [Text(), Text(title, style="bold cyan")]
    return [*heading, Padding(Group(*body), (0, 0, 0, 2))] if body else []


def _table(table: Table, titled: bool = False) -> RenderableType:
    grid = Grid(box=box.SIMPLE, pad_edge=False, collapse_padding=True, show_edge=False)
    grid.add_column(table.axis, overflow="fold")
    for column in table.columns:
        style = "bold" if column.role == "gradient" else ""
        title = column.title.replace("through the ", "through the\n")
        grid.add_column(title, justify="right", style=style, overflow="fold")
    for index, label in enumerate(table.rows):
        mark = "→ " if index in table.selected else "  " if table.selected else ""
        entries = [entry(column, index) for column in table.columns]
        style = "green" if index in table.selected else ""
        grid.add_row(mark + label, *entries, style=style)
    parts: list[RenderableType] = [Text(), *([Text(f"  {table.title}")] if titled else ())]
    parts.append(Padding(grid, (0, 0, 0, 2)))
    if table.omitted:
        parts.append(Text(f"  … and {table.omitted} more", style="dim"))
    if table.note:
        parts.append(Padding(Text(table.note), (0, 0, 0, 2)))
    return Group(*parts)


def _steps(explanation: Explanation) -> list[RenderableType]:
    """The steps as the gradient meets them: the last operation of the program first."""
    names = {
        step.id: f"{step.id} {step.name}"
        for outer in explanation.steps
        for step in outer.unfolded()
    }
    unfolded = len(names) <= _UNFOLDED
    seen: set[Source] = set()
    lines: list[RenderableType] = []
    for step in reversed(explanation.steps):
        if step.inner and unfolded:
            lines.append(_head(step, names))
            inner = [line for part in reversed(step.inner) for line in _step(part, names, seen)]
            lines += [Padding(line, (0, 0, 0, 2)) for line in inner]
        else:
            lines += _step(step, names, seen)
    return lines + [
        _sum(leaf) for leaf in explanation.leaves[:_LEAVES] if leaf.gradient is not None
    ]


def _step(step: Step, names: dict[str, str], seen: set[Source]) -> list[RenderableType]:
    """One step; a line of code is shown where it is met first."""
    lines: list[RenderableType] = [_head(step, names)]
    new = [source for source in step.sources if source not in seen]
    seen.update(new)
    lines += [Padding(_source(source), (0, 0, 0, 5)) for source in new]
    lines += [Padding(_edge(step, edge, names), (0, 0, 0, 5)) for edge in step.edges]
    return lines


def _head(step: Step, names: dict[str, str]) -> Text:
    head = Text(names[step.id], style="bold")
    holder = f"{step.variable} = " if step.variable else ""
    if step.formula:
        head.append(f":  {holder}{step.formula}", style="not bold")
    if step.value is not None:
        head.append(f" = {summary(step.value)}", style="not bold")
    return head


def _edge(step: Step, edge: Edge, names: dict[str, str]) -> Text:
    target = names.get(edge.target, edge.target) or "outside this graph"
    factor = f" × {edge.factor}" if edge.factor else ""
    if edge.factor_value is not None and 1 < edge.factor_value.size <= _SHORT:
        factor += f" = {summary(edge.factor_value)}"
    return Text(f"{summary(step.gradient)}{factor} → {summary(edge.gradient)} to {target}")


def _sum(leaf: Leaf) -> RenderableType:
    """The summands of a leaf's gradient under each other, and their sum."""
    grid = Grid.grid(padding=(0, 1))
    single = len(leaf.contributions) == 1
    for index, part in enumerate(() if single else leaf.contributions[:_SUMMANDS]):
        start = "+" if index else f"{leaf.name} gets"
        grid.add_row(Text(start, justify="right"), summary(part.gradient), part.through)
    if len(leaf.contributions) > _SUMMANDS:
        grid.add_row("", f"+ {len(leaf.contributions) - _SUMMANDS} more", "")
    start = f"{leaf.name} gets" if single else "="
    grid.add_row(Text(start, justify="right"), Text(summary(leaf.gradient), style="bold"), "")
    return grid


def _source(source: Source) -> Text:
    line = f"{source.place}  {source.code}"
    return Text(line, style="dim", no_wrap=True, overflow="ellipsis")


def _rule(rule: RuleStatement, is_short: bool) -> list[RenderableType]:
    lines: list[RenderableType] = [Text(rule.equation, style="bold")]
    if is_short:
        given = [
            f"{t.symbol} = {f'{t.meaning} = ' if t.kind == 'factor' else ''}{summary(t.value, 4)}"
            for t in rule.terms
            if t.kind != "summand"
        ]
        numbers = f"  {', '.join(given)}: gives {summary(rule.result, 4)}"
        return [*lines, Text(numbers), Text(f"  {rule.name}", style="dim")]
    summands = [t for t in rule.terms if t.kind == "summand"]
    symbols = [t for t in rule.terms if t.kind != "summand"]
    lines += [Text(f"  {t.symbol} = {t.meaning} = {summary(t.value)}") for t in symbols]
    if len(summands) > 1:
        lines += [Text(f"  {t.symbol}: {summary(t.value)}") for t in summands]
    lines.append(Text(f"  gives {summary(rule.result)}"))
    lines.append(Text(f"{rule.name}; {rule.reference}", style="dim"))
    if rule.conventions is not None:
        lines += [Text(), Text(rule.conventions.title), _table(rule.conventions)]
    return lines


def _checks(checks: Sequence[Check], is_short: bool) -> list[RenderableType]:
    """Each check; in the short form those that hold in one line."""
    passed = [check.statement for check in checks if check.passed]
    if not is_short or len(passed) < 2:
        return [_check(check) for check in checks]
    failed: list[RenderableType] = [_check(check) for check in checks if not check.passed]
    return [*failed, Text("✓ ", style="green").append("; ".join(passed), style="not bold")]


def _check(check: Check) -> Text:
    mark = Text("✓ " if check.passed else "✗ FAILS ", style="green" if check.passed else "bold red")
    mark.append(check.statement, style="not bold")
    if not (check.deviation == check.tolerance == 0 or math.isnan(check.deviation)):
        sign = "≤" if check.passed else "not within"
        measured = f"  (off by {check.deviation:.1e} {sign} {check.tolerance:.1e})"
        mark.append(measured, style="dim")
    return mark.append(f"; {check.detail}" if check.detail else "")


def _expectation(item: Expectation) -> Text:
    more = f" More: eligibility explain --question {item.question}" if item.question else ""
    return Text(item.expected, style="italic").append(f" {item.answer}{more}", style="not italic")
