"""The frozen record of one explanation, and the formats that it can be written in."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from eligibility.errors import InvalidValueError
from eligibility.explanation.elements import (
    Check,
    Expectation,
    Leaf,
    RuleStatement,
    Step,
    Subject,
    Table,
)
from eligibility.files import write_atomically


@dataclass(frozen=True)
class Explanation:
    """Where every entry of a gradient comes from; made by `eligibility.explain`.

    Prints in a terminal, shows in a notebook, and saves as HTML, text, LaTeX or JSON.

    Attributes:
        title: One line: what is explained.
        subject: What was asked.
        tables: The gradient, one table for each parameter or leaf.
        why: The reason, in words; a sentence an entry.
        steps: The operations, in forward order.
        leaves: Where the gradients end, with their summands.
        rules: The closed forms, one for each parameter; empty for an unknown graph.
        checks: What was computed to hold, and whether it does.
        expected: Common wrong expectations that apply, and their answers.
        notes: What a reader must know about how this was found; usually empty.
        by_rule: The log-probability or probability inside by rule, where a tensor of the user is
            a multiple of one; the page of a script is live there.
        multiple: What ``by_rule`` is multiplied by to give the tensor of the user.

    Example:
        >>> import torch, eligibility as el
        >>> policy = torch.distributions.Categorical(probs=torch.tensor([0.69, 0.1, 0.2, 0.01]))
        >>> explanation = el.explain(policy, value=torch.tensor(0))
        >>> all(check.passed for check in explanation.checks)
        True
        >>> print(explanation.rule.equation)
        ∂ log p/∂w_k = [k = a]/w_k − 1/Σw
    """

    title: str
    subject: Subject
    tables: tuple[Table, ...]
    why: tuple[str, ...]
    steps: tuple[Step, ...]
    leaves: tuple[Leaf, ...]
    rules: tuple[RuleStatement, ...] = ()
    checks: tuple[Check, ...] = ()
    expected: tuple[Expectation, ...] = ()
    notes: tuple[str, ...] = ()
    by_rule: Explanation | None = None
    multiple: float = 1.0

    @property
    def rule(self) -> RuleStatement | None:
        """The closed form of the first parameter; None if none applies."""
        return self.rules[0] if self.rules else None

    def text(self, width: int = 80, sections: Sequence[str] = ()) -> str:
        """The explanation as plain text, folded to ``width`` columns.

        ``sections`` are some of table, why, steps, rule, checks, expected and notes; default: all.
        """
        from eligibility.explanation.terminal import to_text

        return to_text(self.renderable(sections), width)

    def renderable(self, sections: Sequence[str] = ()) -> Any:
        """The same for a Rich console."""
        from eligibility.explanation.terminal import FULL, render

        return render(self, tuple(sections) or FULL)

    def latex(self) -> str:
        """The explanation as a complete LaTeX document."""
        from eligibility.explanation.latex import render_latex

        return render_latex(self)

    def html(self) -> str:
        """The explanation as one self-contained HTML page, with live controls where they apply."""
        from eligibility.explanation.page import render_page

        return render_page(self)

    def to_json(self) -> str:
        """The record as JSON; infinities and NaN are the strings "inf", "-inf" and "nan"."""
        return json.dumps(_to_plain(asdict(self)), ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Explanation:
        """The record that `to_json` wrote."""
        restored: Explanation = _restore(cls, json.loads(text))
        return restored

    def save(self, path: str | Path) -> Path:
        """Write it to ``path``; the suffix chooses the format.

        Raises:
            InvalidValueError: A suffix that is none of the formats.
            OutputError: The file cannot be written.
        """
        path = Path(path)
        renderer = _FORMATS.get(path.suffix.lower())
        if renderer is None:
            raise InvalidValueError(
                "`path`",
                repr(path.name),
                f"a name that ends in {', '.join(_FORMATS)}",
                "choose the format by the suffix",
            )
        return write_atomically(path, renderer(self))

    def __str__(self) -> str:
        return self.text()

    def __rich__(self) -> Any:
        return self.renderable()

    def _repr_html_(self) -> str:
        from eligibility.explanation.page import render_notebook

        return render_notebook(self)

    def _repr_latex_(self) -> str:
        from eligibility.explanation.latex import render_notebook

        return render_notebook(self)


# suffix -> how the record is written
_FORMATS = {
    ".html": Explanation.html,
    ".txt": Explanation.text,
    ".tex": Explanation.latex,
    ".json": Explanation.to_json,
}


def _to_plain(value: Any) -> Any:
    """``value`` with every float that JSON has no word for as a string."""
    if isinstance(value, dict):
        return {key: _to_plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_to_plain(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _restore(kind: Any, value: Any) -> Any:
    """``value``, from JSON, as the type ``kind`` that a field of the record is annotated with."""
    if is_dataclass(kind) and isinstance(kind, type):
        hints = get_type_hints(kind)
        return kind(**{f.name: _restore(hints[f.name], value[f.name]) for f in fields(kind)})
    arguments = get_args(kind)
    if get_origin(kind) is tuple:
        inner = arguments if arguments[-1] is not Ellipsis else (arguments[0],) * len(value)
        return tuple(_restore(item, entry) for item, entry in zip(inner, value, strict=True))
    if get_origin(kind) in (Union, UnionType):
        present = next(item for item in arguments if item is not type(None))
        return None if value is None else _restore(present, value)
    return float(value) if kind is float else value
