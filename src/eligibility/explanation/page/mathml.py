"""Formulas as MathML, which browsers draw without a script, a font or the network."""

from __future__ import annotations

from functools import lru_cache

from eligibility.explanation import formula as f
from eligibility.explanation.page.markup import Markup, element


@lru_cache(maxsize=1024)
def math(text: str, *, display: bool = False) -> Markup:
    """A formula as MathML; as code if it does not hold together, as text if it is a phrase."""
    read = f.formula_of(text)
    if isinstance(read, f.Text) or read == f.Row(()):
        return element("code", text)
    if _has_a_phrase(read):
        return element("span", text)  # which a narrow page can fold
    # Assistive technology reads the MathML itself; the Unicode form is what is copied.
    return element("math", _drawn(read), display="block" if display else None, alttext=text)


def _has_a_phrase(part: f.Formula) -> bool:
    if isinstance(part, f.Row):
        return any(map(_has_a_phrase, part.parts))
    inside = part.inside if isinstance(part, f.Fenced) else part
    return isinstance(inside, f.Text) and " " in inside.text


def _drawn(part: f.Formula) -> Markup:
    match part:
        case f.Symbol(text):
            return _symbol(text)
        case f.Word(text):
            return element("mi", text, mathvariant="normal" if len(text) == 1 else None)
        case f.Text(text):
            return element("mtext", f" {text} ".replace(" ", "\N{NO-BREAK SPACE}"))
        case f.Row(parts):
            return element("mrow", *_spaced(parts))
        case f.Gap(width):
            return _space(width)
        case f.Fraction(above, below):
            return element("mfrac", _drawn(above), _drawn(below))
        case f.Root(inside):
            return element("msqrt", _drawn(inside))
        case f.Fenced(opening, inside, closing):
            stretchy = None if f.is_tall(inside) else "false"
            left, right = (element("mo", b, stretchy=stretchy) for b in (opening, closing))
            return element("mrow", left, _drawn(inside), right)
        case f.Scripts(base, below, above, accent):
            return _scripted(base, below, above, accent)


def _spaced(parts: tuple[f.Formula, ...]) -> list[Markup]:
    """The parts, with space around a function where no bracket is."""
    drawn: list[Markup] = []
    for index, part in enumerate(parts):
        before = parts[index - 1] if index else None
        if f.is_function(part) and _is_factor(before):
            drawn.append(_space(3))
        if f.is_function(before) and not isinstance(part, (f.Fenced, f.Gap)):
            drawn.append(_space(3))
        drawn.append(_drawn(part))
    return drawn


def _is_factor(part: f.Formula | None) -> bool:
    if isinstance(part, f.Symbol):
        return part.text.isalnum()
    return isinstance(part, (f.Word, f.Scripts, f.Fraction, f.Fenced))


def _symbol(text: str) -> Markup:
    if text[0].isdigit():
        return element("mn", text)
    if text == "∑":
        return element("mo", text, largeop="true")
    return element("mi" if text.isalpha() or text in "∂∞…⊤" else "mo", text)


def _scripted(
    base: f.Formula, below: f.Formula | None, above: f.Formula | None, accent: str
) -> Markup:
    drawn = _drawn(base)
    if accent:
        drawn = element("mover", drawn, element("mo", "˜"), accent="true")
    has_limits = base == f.Symbol("∑")
    if below is not None and above is not None:
        tag = "munderover" if has_limits else "msubsup"
        return element(tag, drawn, _drawn(below), _drawn(above))
    if below is not None:
        return element("munder" if has_limits else "msub", drawn, _drawn(below))
    return drawn if above is None else element("msup", drawn, _drawn(above))


def _space(width: int) -> Markup:
    return element("mspace", width=f"{width / 18:.2f}em")
