"""Greek letters, subscripts and names in LaTeX's math mode."""

from __future__ import annotations

import unicodedata

_DIGITS = ("ZERO", "ONE", "TWO", "THREE", "FOUR", "FIVE", "SIX", "SEVEN", "EIGHT", "NINE")


def math_letter(letter: str) -> str:
    r"""``σ`` → ``\sigma``, ``₁`` → ``_1``; any other letter as it is.

    Example:
        >>> print("".join(map(math_letter, "d₁")), math_letter("λ"))
        d_1 \lambda
    """
    kind, _, name = unicodedata.name(letter, "").rpartition(" ")
    name = name.replace("LAMDA", "LAMBDA")  # Unicode's spelling
    if kind == "GREEK SMALL LETTER":
        return f"\\{name.lower()}"
    if kind == "GREEK CAPITAL LETTER":
        return f"\\{name.capitalize()}"
    if kind == "SUBSCRIPT" and name in _DIGITS:
        return f"_{_DIGITS.index(name)}"
    return letter


def as_text(name: str) -> str:
    r"""A name of several letters in math mode: ``log_prob`` → ``\text{log\_prob}``.

    Example:
        >>> print(as_text("log_prob"))
        \text{log\_prob}
    """
    return rf"\text{{{name}}}".replace("_", r"\_")
