"""The report as one page of HTML: the weights drawn as bars next to REINFORCE's."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from eligibility.audit.reporting.picture import bar, component_rows, credit_picture

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


def _conventions(report: AuditReport) -> str:
    if not report.conventions:
        return ""
    rows = "".join(
        f'<tr><td class="what">{escape(c.name)}</td>'
        f"<td>{c.size}</td>"
        f'<td class="what">{escape(c.means)}</td><td class="what">{escape(c.instead)}</td>'
        f'<td class="what">{escape(c.place)}</td></tr>'
        for c in report.conventions
    )
    head = (
        '<tr><th class="what">convention</th><th>bias</th><th class="what">what it does</th>'
        '<th class="what">without it</th><th></th></tr>'
    )
    return f'<div class="wide"><table>{head}{rows}</table></div>'


def _weights(report: AuditReport) -> str:
    rows = report.weights
    if not rows:
        return ""
    largest = max((abs(v) for row in rows for v in (row.given, row.reinforce)), default=1.0) or 1.0
    lines = "".join(
        f"<tr><td>{row.environment}</td><td>{row.time}</td><td>{row.reward:.3f}</td>"
        f"<td>{row.given:.4f} {bar(row.given / largest, '#b3261e')}</td>"
        f"<td>{row.reinforce:.4f} {bar(row.reinforce / largest, '#1a7f37')}</td></tr>"
        for row in rows
    )
    head = "<th>env</th><th>t</th><th>reward</th><th>this program</th><th>REINFORCE</th>"
    return (
        f"<h2>{escape(report.weights_title().capitalize())}</h2>"
        f'<div class="wide"><table><tr>{head}</tr>{lines}</table></div>'
    )


def _components(report: AuditReport) -> str:
    if not report.components:
        return ""
    head = '<tr><th class="what">direction</th><th>this program</th><th>wanted</th></tr>'
    rows = component_rows(report.components, report.wanted)
    return (
        "<h2>The expected gradient, in named directions</h2>"
        f'<div class="wide"><table>{head}{rows}</table></div>'
    )


def _credit(report: AuditReport) -> str:
    if report.credit is None:
        return ""
    return f"<h2>{escape(report.credit.title())}</h2>{credit_picture(report.credit)}"


def _invariances(report: AuditReport) -> str:
    if not report.invariances:
        return ""
    rows = "".join(
        f'<tr><td class="what">{escape(name)}</td><td>{escape(report.change(name))}</td></tr>'
        for name in report.invariances
    )
    head = '<tr><th class="what">changed</th><th>the gradient changes by</th></tr>'
    return f'<h2>What should not matter</h2><div class="wide"><table>{head}{rows}</table></div>'
