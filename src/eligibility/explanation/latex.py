"""The record as LaTeX: a document for a file, a fragment for a notebook. Nothing is computed."""

from __future__ import annotations

from collections.abc import Iterator

from eligibility.explanation.derivation import Explanation
from eligibility.explanation.elements import Numbers, RuleStatement, Step, Table
from eligibility.explanation.formula import escape, latex_of
from eligibility.explanation.wording import cell, number, summary

_PREAMBLE = r"""\documentclass{article}
\usepackage[utf8]{inputenc}
\usepackage{amsmath,amssymb}
\usepackage[margin=2.5cm]{geometry}
\setlength{\parindent}{0pt}
\begin{document}
"""


def render_latex(*explanations: Explanation) -> str:
    """A document that compiles with pdflatex."""
    body = "\n\n".join(block for item in explanations for block in _blocks(item))
    return f"{_PREAMBLE}\n{body}\n\n\\end{{document}}\n"


def render_notebook(explanation: Explanation) -> str:
    """The rule with its result, between dollar signs as notebooks want it."""
    return "\n\n".join(f"$$\n{_rule_equation(rule)}\n$$" for rule in explanation.rules)


def _blocks(explanation: Explanation) -> Iterator[str]:
    yield rf"\section*{{{escape(explanation.title)}}}"
    yield from map(_table, explanation.tables)
    if explanation.why:
        yield r"\subsection*{Why}" + "\n" + "\n\n".join(map(escape, explanation.why))
    if explanation.steps:
        yield r"\subsection*{Steps}"
        yield from map(_step, reversed(explanation.steps))
    if explanation.rules:
        yield r"\subsection*{Rule}"
    for rule in explanation.rules:
        yield f"\\[\n{_rule_equation(rule)}\n\\]\n{escape(f'{rule.name}; {rule.reference}')}"
        if rule.conventions is not None:
            yield _table(rule.conventions)
    if explanation.checks:
        yield (
            r"\subsection*{Checks}"
            + "\n"
            + _items(
                f"{'holds' if c.passed else 'FAILS'}: {c.statement} "
                f"(off by {c.deviation:.1e}, {c.tolerance:.1e} allowed) {c.detail}"
                for c in explanation.checks
            )
        )
    if explanation.expected:
        yield (
            r"\subsection*{You expected}"
            + "\n"
            + _items(f"{item.expected} {item.answer}" for item in explanation.expected)
        )
    if explanation.notes:
        yield r"\subsection*{Notes}" + "\n" + _items(explanation.notes)


def _items(lines: Iterator[str] | tuple[str, ...]) -> str:
    items = "\n".join(rf"\item {escape(line)}" for line in lines)
    return f"\\begin{{itemize}}\n{items}\n\\end{{itemize}}"


def _table(table: Table) -> str:
    titles = " & ".join(escape(title) for title in (table.axis, *(c.title for c in table.columns)))
    rows = [
        " & ".join(
            (
                escape(label),
                *(cell(c.values[i] if i < len(c.values) else None) for c in table.columns),
            )
        )
        for i, label in enumerate(table.rows)
    ]
    body = " \\\\\n".join(rows)
    more = f"\n\n{table.omitted} more entries." if table.omitted else ""
    return (
        f"{escape(table.title)}\n\n\\begin{{tabular}}{{l{'r' * len(table.columns)}}}\n\\hline\n"
        f"{titles} \\\\\n\\hline\n{body} \\\\\n\\hline\n\\end{{tabular}}{more}\n\n"
        f"{escape(table.note)}"
    )


def _step(step: Step) -> str:
    formula = latex_of(step.formula) if step.formula else rf"\text{{{escape(step.name)}}}"
    lines = [rf"\textbf{{{escape(f'{step.id} {step.name}')}}}"]
    value = f" = {_vector(step.value)}" if step.value is not None else ""
    lines.append(f"\\[ {formula}{value} \\]")
    for edge in step.edges:
        factor = rf" \cdot \left({latex_of(edge.factor)}\right)" if edge.factor else ""
        arrow = r"\;\longmapsto\;" if not factor else " = "
        target = rf"\quad\text{{to {escape(edge.target or 'outside')}}}"
        lines.append(
            f"\\[ {_vector(step.gradient)}{factor}{arrow}{_vector(edge.gradient)}{target} \\]"
        )
    return "\n".join(lines)


def _rule_equation(rule: RuleStatement) -> str:
    return f"{latex_of(rule.equation)} = {_vector(rule.result)}"


def _vector(numbers: Numbers | None) -> str:
    if numbers is None or len(numbers.values) != numbers.size or numbers.size > 8:
        return rf"\text{{{escape(summary(numbers))}}}"
    entries = [
        {"inf": r"\infty", "-inf": r"-\infty", "NaN": r"\mathrm{NaN}"}.get(n, n)
        for n in map(number, numbers.values)
    ]
    if not numbers.shape:
        return entries[0]
    return r"\left[" + r",\; ".join(entries) + r"\right]"
