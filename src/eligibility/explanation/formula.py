"""A formula as it is written in Unicode, read once, so that LaTeX and MathML come from the same.

What the equations of rules and the formulas of operations use is known: products by juxtaposition,
fractions whose numerator is the whole product before the slash, scripts, brackets, sums, and words.
A formula that does not hold together is kept as text.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

# Upright names; what LaTeX has a command for is an operator that takes the factor behind it.
FUNCTIONS = frozenset(
    ("ln", "log", "exp", "sin", "cos", "tan", "tanh", "cosh", "sinh", "max", "min", "det")
)
_NAMES = frozenset(
    ("KL", "clamp", "diag", "logit", "mean", "sign", "softmax", "tr", "tril", "entropy")
)
_SMALL_WORDS = frozenset(("an", "at", "by", "if", "in", "is", "it", "of", "or", "to"))
SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁻ᵀᵃˣʸ", "0123456789−⊤axy", strict=True))
_SUBSCRIPTS = dict(zip("₀₁₂₃₄₅₆₇₈₉", "0123456789", strict=True))
_CLOSING = {"(": ")", "[": "]", "{": "}", "|": "|"}
OPERATORS = frozenset("+−=<>≤≥≠∈→·×:∝≈↦!")
# Identifiers of programs, numbers, runs of letters, and every other character by itself.
_TOKEN = re.compile(
    r"[A-Za-z]{2,}(?:_[A-Za-z]{2,})+|\d+(?:\.\d+)?(?:e-?\d+)?|[A-Za-z]+|\s+|.", re.DOTALL
)


class Symbol(NamedTuple):
    """A letter, a number, an operator or a bracket that has no partner."""

    text: str


class Word(NamedTuple):
    """An upright name, such as that of a function."""

    text: str


class Text(NamedTuple):
    """Words that are not mathematics."""

    text: str


class Row(NamedTuple):
    """Parts one after the other."""

    parts: tuple[Formula, ...]


class Gap(NamedTuple):
    """Space, in eighteenths of an em: 3 between factors, 18 between clauses."""

    width: int


class Fraction(NamedTuple):
    """A numerator over a denominator."""

    above: Formula
    below: Formula


class Scripts(NamedTuple):
    """A base with what stands below and above it at its right, or a mark over it."""

    base: Formula
    below: Formula | None = None
    above: Formula | None = None
    accent: str = ""


class Root(NamedTuple):
    """A square root."""

    inside: Formula


class Fenced(NamedTuple):
    """A pair of brackets and what is in it."""

    opening: str
    inside: Formula
    closing: str


Formula = Symbol | Word | Text | Row | Gap | Fraction | Scripts | Root | Fenced
_FACTOR, _CLAUSE = Gap(3), Gap(18)


class _BrokenError(Exception):
    """A bracket without its partner, or an operator without its operand."""


@lru_cache(maxsize=1024)
def formula_of(text: str) -> Formula:
    """The structure of a formula.

    Example:
        >>> formula_of("y/2")
        Fraction(above=Symbol(text='y'), below=Symbol(text='2'))
    """
    try:
        return _Reader(text).everything()
    except _BrokenError:
        return Text(text)


class _Token(NamedTuple):
    text: str
    is_apart: bool  # whether a space stands before it


class _Reader:
    """Recursive descent over the tokens of one formula."""

    def __init__(self, text: str) -> None:
        self._tokens: list[_Token] = []
        is_apart = False
        for token in _TOKEN.findall(text):
            if token.isspace():
                is_apart = True
                continue
            whole = len(token) > 2 or token in FUNCTIONS | _NAMES | _SMALL_WORDS
            for part in (token,) if whole or not token.isalpha() else token:
                self._tokens.append(_Token(part, is_apart))
                is_apart = False
        self._at = 0

    def everything(self) -> Formula:
        result = self._row("")
        if self._at < len(self._tokens):
            raise _BrokenError
        return result

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at] if self._at < len(self._tokens) else _Token("", False)

    def _take(self) -> _Token:
        token = self._next
        self._at += 1
        return token

    def _row(self, closing: str) -> Formula:
        """Sums and clauses up to ``closing``, which stays."""
        parts: list[Formula] = []
        while self._next.text not in ("", closing):
            text = self._next.text
            if text in ",;":
                parts += [Symbol(self._take().text), _FACTOR if closing else _CLAUSE]
            elif text in OPERATORS or text == "-":
                parts.append(Symbol(self._take().text.replace("-", "−")))
            elif text in ")]}":
                raise _BrokenError
            else:
                parts += self._product(closing)
        return _row_of(parts)

    def _product(self, closing: str) -> list[Formula]:
        """Factors up to an operator; a slash divides all of those before it by the next ones."""
        factors: list[Formula] = []
        while not self._is_end(closing):
            if self._next.text == "/":
                self._take()
                if not factors:
                    raise _BrokenError
                below = self._denominator(closing)
                factors = [Fraction(_bare(_row_of(factors)), _bare(below))]
                continue
            token = self._next
            factor = self._factor()
            if factors and token.is_apart and not _is_operator(factors[-1]):
                factors += [] if _is_operator(factor) or isinstance(factor, Text) else [_FACTOR]
            factors.append(factor)
        return _with_text(factors)

    def _denominator(self, closing: str) -> Formula:
        """The factors that no space separates, and what a sum or a function in them takes."""
        factors = [self._factor()]
        while not self._is_end(closing) and self._next.text != "/":
            if self._next.is_apart and not _is_operator(factors[-1]):
                break
            factors.append(self._factor())
        return _row_of(factors)

    def _is_end(self, closing: str) -> bool:
        text = self._next.text
        return text in ("", closing) or text in OPERATORS or text in ",;)]}-"

    def _factor(self) -> Formula:
        """An atom with its scripts."""
        text = self._take().text
        if not text or text in ")]},;/_^":
            raise _BrokenError
        base: Formula
        if text in _CLOSING:
            inside = self._row(_CLOSING[text])
            if self._take().text != _CLOSING[text]:
                raise _BrokenError
            base = Fenced(text, inside, _CLOSING[text])
        elif text == "√":
            return Root(_bare(self._factor()))
        elif text == "½":
            return Fraction(Symbol("1"), Symbol("2"))
        elif text == "Σ" and self._is_summation():
            base = Symbol("∑")
        elif len(text) > 1 and not text[0].isdigit():
            base = Text(text) if self._is_prose(self._at - 1) else Word(text)
        else:
            base = Symbol(text)
        return self._scripted(base)

    def _is_summation(self) -> bool:
        """Whether Σ adds up what follows; else it is the name of a matrix."""
        following = self._next.text
        return following not in ("", *")],=") and following not in SUPERSCRIPTS

    def _is_prose(self, at: int) -> bool:
        """Whether the word there is none of mathematics: a small one, or one of several."""
        here, following = self._word(at), self._word(at + 1)
        if not here or here in _NAMES or "_" in here:
            return False
        spaced = bool(following) and self._tokens[at + 1].is_apart
        is_second = self._tokens[at].is_apart and bool(self._word(at - 1))
        return here in _SMALL_WORDS or spaced or is_second

    def _word(self, at: int) -> str:
        """The word there, of several letters; empty if there is none."""
        text = self._tokens[at].text if 0 <= at < len(self._tokens) else ""
        return text if text[:1].isalpha() and len(text) > 1 and text not in FUNCTIONS else ""

    def _scripted(self, base: Formula) -> Formula:
        below = above = None
        accent = ""
        while not self._next.is_apart and (mark := self._next.text):
            if mark == "\N{COMBINING TILDE}":
                accent = self._take().text
            elif mark == "_" and below is None:
                self._take()
                below = self._subscript()
            elif mark == "^" and above is None:
                self._take()
                sign = [Symbol("−")] if self._next.text in ("−", "-") else []
                self._at += len(sign)
                above = _row_of([*sign, _bare(self._factor())])
            elif mark in SUPERSCRIPTS and above is None:
                above = _row_of([Symbol(text) for text in self._run(SUPERSCRIPTS)])
            elif mark in _SUBSCRIPTS and below is None:
                below = _row_of([Symbol(text) for text in self._run(_SUBSCRIPTS)])
            else:
                break
        return Scripts(base, below, above, accent) if below or above or accent else base

    def _subscript(self) -> Formula:
        if self._next.text in _CLOSING:
            return _bare(self._factor())
        symbols = [Symbol(self._take().text)]
        while symbols[0].text.isalpha() and self._next.text.isalpha() and not self._next.is_apart:
            symbols.append(Symbol(self._take().text))
        if symbols[0].text in ("", *",;)]}/_^"):
            raise _BrokenError
        return _row_of(symbols)

    def _run(self, scripts: dict[str, str]) -> list[str]:
        found: list[str] = []
        while self._next.text in scripts and (not found or not self._next.is_apart):
            found.append(scripts[self._take().text])
        return found


def is_function(part: Formula | None) -> bool:
    """Whether it is a function's name, scripts included."""
    base = part.base if isinstance(part, Scripts) else part
    return isinstance(base, Word) and base.text in FUNCTIONS


def _is_operator(factor: Formula) -> bool:
    """Whether it takes what follows, so that no space for a product belongs between them."""
    base = factor.base if isinstance(factor, Scripts) else factor
    return is_function(base) or base in (Symbol("∑"), Symbol("∂"))


def _with_text(factors: list[Formula]) -> list[Formula]:
    """The same, neighbouring words as one text with the spaces around them."""
    result: list[Formula] = []
    for factor in factors:
        before = result[-1] if result else None
        if isinstance(factor, Text) and isinstance(before, Text):
            result[-1] = Text(f"{before.text} {factor.text}")
        elif isinstance(before, Text) and isinstance(factor, Gap):
            continue
        else:
            result.append(factor)
    return result


def _row_of(parts: list[Formula] | list[Symbol]) -> Formula:
    return parts[0] if len(parts) == 1 else Row(tuple(parts))


def _bare(formula: Formula) -> Formula:
    """What is in round or curly brackets, where something else holds it together."""
    return formula.inside if isinstance(formula, Fenced) and formula.opening in "({" else formula


def is_tall(formula: Formula) -> bool:
    """Whether brackets around it must grow."""
    match formula:
        case Fraction():
            return True
        case Row(parts):
            return any(map(is_tall, parts))
        case Fenced(_, inside, _) | Root(inside):
            return is_tall(inside)
        case Scripts(base):
            return is_tall(base)
    return False
