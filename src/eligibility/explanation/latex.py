"""The record as LaTeX: a document for a file, a fragment for a notebook. Nothing is computed."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from eligibility.explanation import formula as f
from eligibility.explanation.elements import Numbers, RuleStatement, Step, Table
from eligibility.explanation.wording import entry, number, summary

if TYPE_CHECKING:
    from eligibility.explanation.derivation import Explanation

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
    yield from _listed(
        "Checks",
        (
            f"{'holds' if c.passed else 'FAILS'}: {c.statement} "
            f"(off by {c.deviation:.1e}, {c.tolerance:.1e} allowed) {c.detail}"
            for c in explanation.checks
        ),
    )
    yield from _listed("You expected", (f"{e.expected} {e.answer}" for e in explanation.expected))
    yield from _listed("Notes", explanation.notes)


def _listed(title: str, lines: Iterable[str]) -> Iterator[str]:
    """A subsection with an item for each line; nothing where there is none."""
    items = "\n".join(rf"\item {escape(line)}" for line in lines)
    if items:
        yield f"\\subsection*{{{title}}}\n\\begin{{itemize}}\n{items}\n\\end{{itemize}}"


def _table(table: Table) -> str:
    titles = " & ".join(escape(title) for title in (table.axis, *(c.title for c in table.columns)))
    rows = [
        " & ".join((escape(label), *(entry(column, i) for column in table.columns)))
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
    is_formula = step.formula and step.operation
    formula = latex_of(step.formula) if is_formula else rf"\text{{{escape(step.name)}}}"
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


_MATHEMATICAL = {
    "−": "-", "∑": r"\sum", "∂": r"\partial", "·": r"\cdot", "×": r"\times", "→": r"\to",
    "↦": r"\mapsto", "≤": r"\le", "≥": r"\ge", "≠": r"\ne", "∈": r"\in", "≈": r"\approx",
    "∝": r"\propto", "∞": r"\infty", "…": r"\dots", "¬": r"\lnot", "⊤": r"\top", "‖": r"\|",
    "½": r"\tfrac{1}{2}", "√": r"\surd", "✓": r"\checkmark", "\N{COMBINING TILDE}": r"\tilde{}",
}  # fmt: skip
_DIGITS = ("ZERO", "ONE", "TWO", "THREE", "FOUR", "FIVE", "SIX", "SEVEN", "EIGHT", "NINE")
_SPECIAL = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "_": r"\_", "^": r"\textasciicircum{}",
    "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "~": r"\textasciitilde{}",
    "<": "$<$", ">": "$>$", "|": "$|$", "—": "---", "–": "--",
}  # fmt: skip


def latex_of(text: str) -> str:
    r"""A formula in LaTeX's math mode, without dollar signs.

    Example:
        >>> print(latex_of("y_k/w_k − n/Σw, w = softmax(z)"))
        \frac{y_k}{w_k} - \frac{n}{\sum w},\quad w = \mathrm{softmax}(z)
    """
    return _latex(f.formula_of(text))


def _latex(formula: f.Formula) -> str:
    match formula:
        case f.Symbol(text):
            return _mathematical(text) or rf"\text{{{escape(text)}}}"
        case f.Word(text):
            return rf"\{text}" if text in f.FUNCTIONS else rf"\mathrm{{{escape(text)}}}"
        case f.Text(text):
            return rf"\text{{ {escape(text)} }}"
        case f.Row(parts):
            return _joined(parts)
        case f.Gap(width):
            return r"\," if width == 3 else r"\quad"
        case f.Fraction(above, below):
            return rf"\frac{{{_latex(above)}}}{{{_latex(below)}}}"
        case f.Root(inside):
            return rf"\sqrt{{{_latex(inside)}}}"
        case f.Fenced(opening, inside, closing):
            pair = (opening, closing) if opening != "{" else (r"\{", r"\}")
            left, right = (r"\left", r"\right") if f.is_tall(inside) else ("", "")
            return f"{left}{pair[0]}{_latex(inside)}{right}{pair[1]}"
        case f.Scripts(base, below, above, accent):
            marked = rf"\tilde{{{_latex(base)}}}" if accent else _latex(base)
            under = "" if below is None else f"_{_grouped(below)}"
            return marked + under + ("" if above is None else f"^{_grouped(above)}")


def _joined(parts: tuple[f.Formula, ...]) -> str:
    """With spaces around operators, and behind commands that a letter follows."""
    result = ""
    for part in parts:
        written = _latex(part)
        is_operator = isinstance(part, f.Symbol) and part.text in f.OPERATORS
        if is_operator and result and not result.endswith((" ", "(", "[", "{")):
            written = f" {written} "
        elif re.search(r"\\[A-Za-z]+$", result) and written[:1].isalpha():
            written = f" {written}"
        elif written == r"\quad":
            written = r"\quad "
        result += written
    return result


def _grouped(formula: f.Formula) -> str:
    written = _latex(formula)
    return written if len(written) == 1 else f"{{{written}}}"


def escape(text: str) -> str:
    """``text`` for LaTeX's text mode; a letter that has no name here as its code point."""
    return "".join(map(_letter, text))


def _letter(letter: str) -> str:
    if letter in _SPECIAL:
        return _SPECIAL[letter]
    if letter in f.SUPERSCRIPTS:
        return f"$^{{{_mathematical(f.SUPERSCRIPTS[letter])}}}$"
    if ord(letter) < 128 or (ord(letter) < 256 and letter not in _MATHEMATICAL):
        return letter
    symbol = _mathematical(letter)
    return f"[U+{ord(letter):04X}]" if symbol is None else f"${symbol}$"


def _mathematical(text: str) -> str | None:
    """A letter, a number or an operator in math mode; None if it has no name there."""
    if text in _MATHEMATICAL:
        return _MATHEMATICAL[text]
    kind, _, name = unicodedata.name(text, "").rpartition(" ") if len(text) == 1 else ("", "", "")
    name = name.replace("LAMDA", "LAMBDA")  # Unicode's spelling
    if kind == "GREEK SMALL LETTER":
        return f"\\{name.lower()}"
    if kind == "GREEK CAPITAL LETTER":
        return f"\\{name.capitalize()}"
    if kind == "SUBSCRIPT" and name in _DIGITS:
        return f"_{_DIGITS.index(name)}"
    return text if (text.isascii() and text not in _SPECIAL) or text in "<>|" else None
