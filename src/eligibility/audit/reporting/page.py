"""The report as one page of HTML: the weights drawn as bars next to REINFORCE's."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eligibility.audit.reporting.report import AuditReport, Credit, Finding

_SQUARE, _LABEL, _GAP = 26, 210, 60  # pixels
_UP, _DOWN = "#1a7f37", "#b3261e"
_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;
padding:0 1rem;color:#1b1f24}
h1{font-size:1.4rem}.verdict{padding:.1rem .6rem;border-radius:.3rem;color:#fff;background:#8a6d00}
.unbiased{background:#1a7f37}.convention{background:#0a6c8a}
.biased,.wrong-sign,.no-gradient{background:#b3261e}
dl{display:grid;grid-template-columns:5rem 1fr;gap:.2rem 1rem;border-left:4px solid #b3261e;
padding:.4rem 1rem}dl.warning{border-color:#b58900}dt{color:#57606a}dd{margin:0}
table{border-collapse:collapse}td,th{padding:.2rem .8rem;text-align:right}
td.what,th.what{text-align:left}th{color:#57606a;font-weight:normal}
code{background:#f2f4f6;padding:.1rem .3rem}svg{vertical-align:middle}
svg.credit text{font:12px system-ui,sans-serif;fill:currentColor}
code{overflow-wrap:anywhere}.wide{overflow-x:auto}
@media(max-width:32rem){td,th{padding:.2rem .3rem}td svg{display:block;margin-left:auto}}
@media(prefers-color-scheme:dark){body{background:#16181c;color:#e6e8eb}code{background:#2a2e34}
dt,th{color:#a9b1ba}}
"""


def render_html(report: AuditReport) -> str:
    """One page without scripts, fonts or links to load."""
    verdict = escape(report.verdict)
    body = [
        f'<h1><span class="verdict {verdict}">{verdict}</span> {escape(report.program)}</h1>',
        f"<p>{_words(report.summary)}</p>",
        f"<p>{escape(report.measured())}.</p>",
        *(_finding(finding) for finding in report.findings),
    ]
    if report.rule:
        body.append(f"<p>Rule: {escape(report.rule)}</p>")
    body += [_components(report), _credit(report), _invariances(report)]
    body += [_conventions(report), _weights(report)]
    body += [f"<p><small>{_words(note)}</small></p>" for note in report.notes]
    title = escape(f"{report.program}: {report.verdict}")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title>"
        f"<style>{_STYLE}</style></head><body>{''.join(body)}</body></html>\n"
    )


def _words(text: str) -> str:
    """A sentence; what stands in backticks is code."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(text))


def _finding(finding: Finding) -> str:
    rows = {
        finding.severity: f"<strong>{escape(finding.title)}</strong>",
        "means": _words(finding.means),
        "where": f"<code>{escape(finding.place)}</code>"
        + (f"<br><code>{escape(finding.code)}</code>" if finding.code else ""),
        "seen": _words(finding.evidence),
        "fix": f"<code>{escape(finding.fix)}</code>",
    }
    inner = "".join(f"<dt>{escape(name)}</dt><dd>{text}</dd>" for name, text in rows.items())
    return f'<dl class="{escape(finding.severity)}">{inner}</dl>'


def _table(title: str, columns: str, rows: Iterable[Iterable[str]]) -> str:
    """A table under its title; a name of ``columns`` that begins with "<" is one of words."""
    names = columns.split("|")
    kinds = [' class="what"' if name.startswith("<") else "" for name in names]
    head = "".join(
        f"<th{kind}>{name.removeprefix('<')}</th>" for kind, name in zip(kinds, names, strict=True)
    )
    body = "".join(
        f"<tr>{''.join(f'<td{k}>{cell}</td>' for k, cell in zip(kinds, row, strict=True))}</tr>"
        for row in rows
    )
    table = f'<div class="wide"><table><tr>{head}</tr>{body}</table></div>'
    return f"<h2>{escape(title)}</h2>{table}" if body else ""


def _conventions(report: AuditReport) -> str:
    columns = {
        "<convention": [c.name for c in report.conventions],
        "bias": [c.size for c in report.conventions],
        "<what it does": [c.means for c in report.conventions],
        "<without it": [c.instead for c in report.conventions],
        "<where": [c.place for c in report.conventions],
    }
    said = {name: map(_words, cells) for name, cells in columns.items() if any(cells)}
    return _table("Conventions", "|".join(said), zip(*said.values(), strict=True))


def _weights(report: AuditReport) -> str:
    largest = _largest(v for row in report.weights for v in (row.given, row.reinforce))
    rows = [
        (
            str(row.environment),
            str(row.time),
            f"{row.reward:.3f}",
            f"{row.given:.4f} {bar(row.given / largest, _DOWN)}",
            f"{row.reinforce:.4f} {bar(row.reinforce / largest, _UP)}",
        )
        for row in report.weights
    ]
    title = report.weights_title().capitalize()
    return _table(title, "env|t|reward|this program|REINFORCE", rows)


def _components(report: AuditReport) -> str:
    """Each direction with its coefficient and the wanted one, each with a bar."""
    columns = ((report.components, _DOWN), (report.wanted, _UP))
    largest = _largest(v for values, _ in columns for v in values.values())
    rows = []
    for name in {**report.components, **report.wanted} if report.components else ():
        shown = [(values.get(name, 0.0), colour) for values, colour in columns]
        bars = (f"{value:.4f} {bar(value / largest, colour)}" for value, colour in shown)
        rows.append((escape(name), *bars))
    title = "The expected gradient, in named directions"
    return _table(title, "<direction|this program|wanted", rows)


def _largest(values: Iterable[float]) -> float:
    return max(map(abs, values), default=1.0) or 1.0


def _credit(report: AuditReport) -> str:
    if report.credit is None:
        return ""
    return f"<h2>{escape(report.credit.title())}</h2>{credit_picture(report.credit)}"


def _invariances(report: AuditReport) -> str:
    rows = [(escape(name), escape(report.change(name))) for name in report.invariances]
    return _table("What should not matter", "<changed|the gradient changes by", rows)


def credit_picture(credit: Credit) -> str:
    """M as squares, the program's on the left and REINFORCE's on the right, on one scale."""
    largest = _largest(v for row in (*credit.given, *credit.reinforce) for v in row)
    columns, rows = len(credit.rewards), len(credit.decisions)
    width = _LABEL + 2 * columns * _SQUARE + _GAP
    height = (rows + 2) * _SQUARE
    second = _LABEL + columns * _SQUARE + _GAP
    parts = [
        f'<text x="{_LABEL}" y="14">this program</text>',
        f'<text x="{second}" y="14">REINFORCE</text>',
    ]
    for number, name in enumerate(credit.decisions):
        y = (number + 1.7) * _SQUARE
        parts.append(f'<text x="0" y="{y:.0f}">{escape(name)}</text>')
    for left, matrix in ((_LABEL, credit.given), (second, credit.reinforce)):
        parts += _squares(left, matrix, largest, credit)
    return (
        '<div class="wide"><svg class="credit" role="img" '
        f'aria-label="credit of {rows} decisions by {columns} rewards" '
        f'width="{width}" height="{height}" viewBox="0 0 {width} {height}">'
        f"{''.join(parts)}</svg></div>"
    )


def _squares(
    left: int, matrix: Sequence[Sequence[float]], largest: float, credit: Credit
) -> list[str]:
    made = []
    for y, row in enumerate(matrix):
        for x, value in enumerate(row):
            title = f"{credit.decisions[y]}, {credit.rewards[x]}: {value:.4g}"
            made.append(
                f'<rect x="{left + x * _SQUARE}" y="{(y + 1) * _SQUARE}" width="{_SQUARE - 2}" '
                f'height="{_SQUARE - 2}" fill="{_UP if value >= 0 else _DOWN}" '
                f'fill-opacity="{min(abs(value) / largest, 1.0):.3f}" stroke="#8b949e" '
                f'stroke-width="0.5"><title>{escape(title)}</title></rect>'
            )
    return made


def bar(share: float, colour: str) -> str:
    """A bar from the middle: to the right for a positive share, to the left for a negative one."""
    width = 60.0 * min(abs(share), 1.0)
    left = 60.0 if share >= 0 else 60.0 - width
    return (
        f'<svg width="120" height="14" role="img" aria-label="{share:.2f}">'
        '<line x1="60" y1="0" x2="60" y2="14" stroke="#8b949e"/>'
        f'<rect x="{left:.1f}" y="3" width="{width:.1f}" height="8" fill="{colour}"/></svg>'
    )
