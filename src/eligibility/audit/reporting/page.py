"""The report as one page of HTML: the weights drawn as bars next to REINFORCE's."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING

from eligibility.audit.reporting.picture import DOWN, UP, bar, credit_picture

if TYPE_CHECKING:
    from eligibility.audit.reporting.report import AuditReport, Finding

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
        f"<p>{escape(report.summary)}</p>",
        f"<p>{escape(report.measured())}.</p>",
        *(_finding(finding) for finding in report.findings),
    ]
    if report.rule:
        body.append(f"<p>Rule: {escape(report.rule)}</p>")
    body += [_components(report), _credit(report), _invariances(report)]
    body += [_conventions(report), _weights(report)]
    body += [f"<p><small>{escape(note)}</small></p>" for note in report.notes]
    title = escape(f"{report.program}: {report.verdict}")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title>"
        f"<style>{_STYLE}</style></head><body>{''.join(body)}</body></html>\n"
    )


def _finding(finding: Finding) -> str:
    rows = {
        finding.severity: f"<strong>{escape(finding.title)}</strong>",
        "means": escape(finding.means),
        "where": f"<code>{escape(finding.place)}</code>"
        + (f"<br><code>{escape(finding.code)}</code>" if finding.code else ""),
        "seen": escape(finding.evidence),
        "fix": f"<code>{escape(finding.fix)}</code>",
    }
    inner = "".join(f"<dt>{escape(name)}</dt><dd>{text}</dd>" for name, text in rows.items())
    return f'<dl class="{escape(finding.severity)}">{inner}</dl>'


def _table(title: str, columns: str, rows: Iterable[Iterable[str]]) -> str:
    """A table under a title; a name of ``columns`` that begins with "<" is one of words."""
    names = columns.split("|")
    kinds = [' class="what"' if name.startswith("<") else "" for name in names]
    head = "".join(
        f"<th{kind}>{name.removeprefix('<')}</th>" for kind, name in zip(kinds, names, strict=True)
    )
    body = "".join(
        f"<tr>{''.join(f'<td{k}>{cell}</td>' for k, cell in zip(kinds, row, strict=True))}</tr>"
        for row in rows
    )
    heading = f"<h2>{escape(title)}</h2>" if title else ""
    return f'{heading}<div class="wide"><table><tr>{head}</tr>{body}</table></div>' if body else ""


def _conventions(report: AuditReport) -> str:
    rows = [(c.name, c.size, c.means, c.instead, c.place) for c in report.conventions]
    columns = "<convention|bias|<what it does|<without it|<"
    return _table("", columns, (map(escape, row) for row in rows))


def _weights(report: AuditReport) -> str:
    largest = _largest(v for row in report.weights for v in (row.given, row.reinforce))
    rows = [
        (
            str(row.environment),
            str(row.time),
            f"{row.reward:.3f}",
            f"{row.given:.4f} {bar(row.given / largest, DOWN)}",
            f"{row.reinforce:.4f} {bar(row.reinforce / largest, UP)}",
        )
        for row in report.weights
    ]
    title = report.weights_title().capitalize()
    return _table(title, "env|t|reward|this program|REINFORCE", rows)


def _components(report: AuditReport) -> str:
    """Each direction with its coefficient and the wanted one, each with a bar."""
    columns = ((report.components, DOWN), (report.wanted, UP))
    largest = _largest(v for values, _ in columns for v in values.values())
    rows = [
        (
            escape(name),
            *(
                f"{values.get(name, 0.0):.4f} {bar(values.get(name, 0.0) / largest, colour)}"
                for values, colour in columns
            ),
        )
        for name in ({**report.components, **report.wanted} if report.components else ())
    ]
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
