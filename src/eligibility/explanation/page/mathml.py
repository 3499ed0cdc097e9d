"""The record's LaTeX as MathML, which browsers draw without a script, a font or the network.

Only what formulas of rules and operations use is known, and text is escaped by construction. A
formula that holds anything else is shown as it was written in Unicode.
"""

from __future__ import annotations

import re
from functools import lru_cache

from eligibility.explanation.page.markup import Markup, element, join

_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|\d+(?:\.\d+)?|\s+|.", re.DOTALL)
_IDENTIFIERS = {
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "epsilon": "ϵ", "varepsilon": "ε",
    "eta": "η", "theta": "θ", "kappa": "κ", "lambda": "λ", "mu": "μ", "nu": "ν", "pi": "π",
    "rho": "ρ", "sigma": "σ", "tau": "τ", "phi": "φ", "psi": "ψ", "omega": "ω", "Gamma": "Γ",
    "Delta": "Δ", "Lambda": "Λ", "Pi": "Π", "Sigma": "Σ", "Phi": "Φ", "Psi": "Ψ", "Omega": "Ω",
    "partial": "∂", "infty": "∞", "ell": "ℓ", "top": "⊤", "dots": "…", "ldots": "…", "nabla": "∇",
    "xi": "ξ",
}  # fmt: skip
_OPERATORS = {
    "cdot": "·", "times": "×", "odot": "⊙", "circ": "∘", "le": "≤", "leq": "≤", "ge": "≥",
    "geq": "≥", "ne": "≠", "neq": "≠", "in": "∈", "notin": "∉", "pm": "±", "to": "→", "lnot": "¬",
    "mid": "|", "approx": "≈", "sim": "∼", "langle": "⟨", "rangle": "⟩", "|": "‖", "{": "{",
    "}": "}", "cdots": "⋯", "colon": ":", "propto": "∝", "lfloor": "⌊", "rfloor": "⌋", "prime": "′",
}  # fmt: skip
_LARGE = {"sum": "∑", "prod": "∏", "int": "∫"}
_FUNCTIONS = frozenset(
    {"ln", "log", "exp", "sin", "cos", "tan", "tanh", "cosh", "sinh", "max", "min", "det", "arg"}
)
_SPACES = {",": "0.17em", ":": "0.22em", ";": "0.28em", "!": "-0.17em", " ": "0.25em",
           "quad": "1em", "qquad": "2em"}  # fmt: skip
_WORDS = frozenset({"mathrm", "operatorname", "mathsf", "mathbf", "mathit", "mathbb", "mathcal"})
_DOUBLE_STRUCK = {"E": "𝔼", "R": "ℝ", "P": "ℙ", "N": "ℕ"}
_STYLES = frozenset({"textstyle", "displaystyle", "limits", "nolimits"})
_BRACKETS = frozenset("()[]|")


class _UnknownLatexError(Exception):
    """The formula uses something that is not known here."""


@lru_cache(maxsize=1024)
def math(latex: str, fallback: str, *, display: bool = False) -> Markup:
    """``latex`` as MathML; ``fallback`` as code if it is empty or holds something unknown."""
    try:
        content = _Reader(latex).everything() if latex else None
    except _UnknownLatexError:
        content = None
    if not content:
        return element("code", fallback)
    # Assistive technology reads the MathML itself; the Unicode form is what is copied.
    return element("math", content, display="block" if display else None, alttext=fallback)


class _Reader:
    """Recursive descent over the tokens of one formula."""

    def __init__(self, latex: str) -> None:
        self._tokens = _TOKEN.findall(latex)
        self._at = 0

    def everything(self) -> Markup:
        return self._row(until=None)

    def _peek(self) -> str | None:
        while self._at < len(self._tokens) and self._tokens[self._at].isspace():
            self._at += 1
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _next(self) -> str:
        token = self._peek()
        if token is None:
            raise _UnknownLatexError("the end")
        self._at += 1
        return token

    def _row(self, until: str | None) -> Markup:
        """Everything before the token ``until``, which is consumed."""
        parts: list[Markup] = []
        while (token := self._peek()) is not None and token != until:
            if token in ("}", r"\right"):
                raise _UnknownLatexError(token)
            if token[1:] in _FUNCTIONS and parts and parts[-1].startswith(("<mi", "<mn", "<ms")):
                parts.append(_space("0.17em"))
            parts.append(self._scripted())
        if until is not None:
            if self._peek() is None:
                raise _UnknownLatexError("the end")
            self._next()
        return element("mrow", *parts)

    def _scripted(self) -> Markup:
        """One atom with the sub- and superscript behind it."""
        token = self._peek()
        base = self._atom()
        below = above = None
        while (mark := self._peek()) in ("_", "^", "'"):
            self._next()
            if (below if mark == "_" else above) is not None:
                raise _UnknownLatexError("a second script")
            if mark == "_":
                below = self._atom()
            else:
                above = element("mo", "′") if mark == "'" else self._atom()
        scripted = _with_scripts(base, below, above, limits=(token or "")[1:] in _LARGE)
        is_function = token is not None and token[1:] in _FUNCTIONS
        following = self._peek()
        if is_function and following is not None and following not in ("(", "[", r"\left", "}"):
            return join(scripted, _space("0.17em"))
        return scripted

    def _atom(self) -> Markup:
        token = self._next()
        if token == "{":
            return self._row(until="}")
        if token.startswith("\\"):
            return self._command(token[1:])
        if token[0].isdigit():
            return element("mn", token)
        if token in ("}", "_", "^", "&", "#", "%", "~", "$"):
            raise _UnknownLatexError(token)
        if token.isalpha():
            return element("mi", token)
        if token in _BRACKETS:
            return element("mo", token, stretchy="false")
        return element("mo", "−" if token == "-" else token)

    def _command(self, name: str) -> Markup:
        if name in ("frac", "tfrac", "dfrac"):
            fraction = element("mfrac", self._atom(), self._atom())
            small = name == "tfrac"
            return element("mstyle", fraction, displaystyle="false") if small else fraction
        if name == "sqrt":
            return element("msqrt", self._atom())
        if name in ("hat", "bar", "tilde"):
            mark = {"hat": "^", "bar": "‾", "tilde": "˜"}[name]
            return element("mover", self._atom(), element("mo", mark), accent="true")
        if name == "text":
            return element("mtext", self._words().replace(" ", "\N{NO-BREAK SPACE}"))
        if name in _WORDS:
            word = self._words()
            if name == "mathbb":
                word = _DOUBLE_STRUCK.get(word, word)
            return element("mi", word, mathvariant="normal" if len(word) == 1 else None)
        if name == "left":
            return self._fenced()
        return self._symbol(name)

    def _symbol(self, name: str) -> Markup:
        if name in _IDENTIFIERS:
            return element("mi", _IDENTIFIERS[name])
        if name in _FUNCTIONS:
            return element("mi", name)
        if name in _LARGE:
            return element("mo", _LARGE[name], largeop="true")
        if name in _OPERATORS:
            return element("mo", _OPERATORS[name])
        if name in _SPACES:
            return _space(_SPACES[name])
        if name in _STYLES:
            return Markup("")
        raise _UnknownLatexError(name)

    def _words(self) -> str:
        """The text of a braced group, verbatim."""
        if self._next() != "{":
            raise _UnknownLatexError("a group was expected")
        start = self._at
        while self._at < len(self._tokens) and self._tokens[self._at] != "}":
            if self._tokens[self._at] == "{":
                raise _UnknownLatexError("{")
            self._at += 1
        if self._at == len(self._tokens):
            raise _UnknownLatexError("the end")
        words = "".join(self._tokens[start : self._at]).replace(r"\_", "_")
        self._at += 1
        return words

    def _fenced(self) -> Markup:
        opening = self._delimiter()
        inner = self._row(until=r"\right")
        closing = self._delimiter()
        return element("mrow", opening, inner, closing)

    def _delimiter(self) -> Markup:
        token = self._next().lstrip("\\")
        return Markup("") if token == "." else element("mo", _OPERATORS.get(token, token))


def _with_scripts(
    base: Markup, below: Markup | None, above: Markup | None, *, limits: bool
) -> Markup:
    if below is not None and above is not None:
        return element("munderover" if limits else "msubsup", base, below, above)
    if below is not None:
        return element("munder" if limits else "msub", base, below)
    return base if above is None else element("msup", base, above)


def _space(width: str) -> Markup:
    return element("mspace", width=width)
