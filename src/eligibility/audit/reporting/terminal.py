"""The report in a terminal."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Literal

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from eligibility.audit.reporting.report import AuditReport, Credit, Finding

_WIDE = 5  # rewards, beyond which their columns are narrow
_STYLES = {
    "unbiased": "bold green",
    "convention": "bold cyan",
    "biased": "bold red",
    "wrong-sign": "bold red",
    "no-gradient": "bold red",
    "inconclusive": "bold yellow",
    "unexplained": "bold yellow",
}


def renderable(report: AuditReport) -> RenderableType:
    """The report as something that Rich prints."""
    head = Text()
    head.append(report.verdict.upper(), style=_STYLES[report.verdict])
    head.append(f"  {report.program}: {report.summary}")
    parts: list[RenderableType] = [
        head,
        Text(f"{report.measured()}, {report.seconds:.1f} s", style="dim"),
    ]
    for finding in report.findings:
        parts += [Text(), _finding(finding)]
    if report.rule:
        parts += [Text(), Text(f"RULE   {report.rule}")]
    if report.conventions:
        parts += [Text(), _conventions(report)]
        parts += [
            Text(f"without {c.name}: {c.instead}", style="dim")
            for c in report.conventions
            if c.bias and c.instead
        ]
    if report.components:
        parts += [Text(), _components(report)]
    if report.credit is not None:
        title = f"{report.credit.title()}; REINFORCE's in brackets where it differs"
        parts += [Text(), Text(title), _credit(report.credit)]
    if report.invariances:
        parts += [Text(), _invariances(report)]
    if report.weights:
        parts += [Text(), Text(report.weights_title()), _weights(report)]
    parts += [Text(f"note: {note}", style="dim") for note in report.notes]
    return Group(*parts)


def render_text(report: AuditReport, width: int) -> str:
    """The report without colours."""
    file = io.StringIO()
    console = Console(file=file, width=width, color_system=None, force_terminal=False)
    console.print(renderable(report))
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines())


def _finding(finding: Finding) -> Table:
    grid = Table.grid(padding=(0, 2))
    style = "bold red" if finding.severity == "fault" else "bold yellow"
    grid.add_row(Text(finding.severity.upper(), style=style), Text(finding.title, style="bold"))
    grid.add_row("MEANS", Text(finding.means))
    grid.add_row("WHERE", Text(finding.place))
    if finding.code:
        grid.add_row("", Text(finding.code, style="cyan"))
    grid.add_row("SEEN", Text(finding.evidence))
    grid.add_row("FIX", Text(finding.fix))
    grid.add_row("NAME", Text(finding.rule, style="dim"))
    return grid


def _table(*columns: str) -> Table:
    """An empty table; ">" before a column's name stands for numbers, on the right."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in columns:
        justify: Literal["left", "right"] = "right" if name.startswith(">") else "left"
        table.add_column(name.removeprefix(">"), justify=justify)
    return table


def _conventions(report: AuditReport) -> Table:
    placed = any(convention.place for convention in report.conventions)
    table = _table("convention", ">bias", "what it does", *["where"] * placed)
    for convention in report.conventions:
        place = [convention.place] if placed else []
        table.add_row(convention.name, convention.size, convention.means, *place)
    return table


def _weights(report: AuditReport) -> Table:
    table = _table(">env", ">t", ">reward", ">this program", ">REINFORCE")
    for row in report.weights:
        numbers = (f"{row.reward:.3f}", f"{row.given:.4f}", f"{row.reinforce:.4f}")
        table.add_row(str(row.environment), str(row.time), *numbers)
    return table


def _components(report: AuditReport) -> Table:
    table = _table("direction of the expected gradient", ">this program", ">wanted")
    for name in {**report.components, **report.wanted}:
        given, wanted = report.components.get(name, 0.0), report.wanted.get(name, 0.0)
        table.add_row(name, f"{given:.4f}", f"{wanted:.4f}")
    return table


def _credit(credit: Credit) -> Table:
    table = _table("", *(f">{name}" for name in credit.rewards))
    table.columns[0].no_wrap = True
    digits = 3
    if len(credit.rewards) > _WIDE:  # so that a cell's two lines fit
        table.padding, digits = (0, 0, 0, 1), 2
    for row, name in enumerate(credit.decisions):
        cells = [
            f"{_plain(value, digits)} ({_plain(credit.reinforce[row][column], digits)})"
            if credit.differs(row, column)
            else _plain(value, digits)
            for column, value in enumerate(credit.given[row])
        ]
        table.add_row(name, *cells)
    return table


def _plain(value: float, digits: int) -> str:
    """Rounded, and without a sign before a zero."""
    return f"{value if abs(value) >= 0.5 * 10**-digits else 0.0:.{digits}f}"


def _invariances(report: AuditReport) -> Text:
    changes = {name: report.change(name) for name in report.invariances}
    moved = [f"{name} {change}" for name, change in changes.items() if change != "0"]
    still = [name for name, change in changes.items() if change == "0"]
    said = [f"the gradient changes with {', '.join(moved)}"] if moved else []
    if still:
        said.append(f"{'it' if moved else 'the gradient'} does not change with {', '.join(still)}")
    return Text("; ".join(said))
