"""The live controls: what the reader may change, and the numbers that the script starts from.

The script (in ``assets``) implements the closed forms of the categorical family and walks the
recorded steps again, forwards and backwards. The controls stay hidden where no script runs.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

from eligibility.explanation.elements import Numbers, RuleStatement
from eligibility.explanation.page.markup import Markup, element, join
from eligibility.explanation.page.mathml import math as mathml
from eligibility.explanation.sentences import SENTENCES
from eligibility.explanation.wording import number

if TYPE_CHECKING:
    from eligibility.explanation.derivation import Explanation

_FAMILY = ("Categorical", "OneHotCategorical", "Multinomial")
_MOST_CATEGORIES = 12


def is_live(explanation: Explanation) -> bool:
    """Whether the script can follow: one outcome of the categorical family, few categories."""
    subject = explanation.subject
    if subject.kind != "rule" or subject.family not in _FAMILY:
        return False
    if len(subject.parameters) != 1 or len(explanation.rules) != 1:
        return False
    name, given = subject.parameters[0]
    one_row = math.prod(given.shape[:-1]) == 1 and len(given.values) == given.size
    finite = all(map(math.isfinite, given.values)) and (name == "logits" or sum(given.values) > 0)
    return (
        subject.wrt == (name,)
        and one_row
        and finite
        and 2 <= given.size <= _MOST_CATEGORIES
        and subject.outcome is not None
        and subject.outcome.size == (1 if subject.family == "Categorical" else given.size)
    )


def data(explanation: Explanation) -> Markup:
    """The record and the equations, for the script; nothing in it can end the element early."""
    (rule,) = explanation.rules
    statements = {
        statement.coordinates: {
            "equation": mathml(statement.equation, display=True),
            "reference": f"{statement.name}; {statement.reference}",
            "terms": [[term.symbol, term.kind, term.meaning] for term in statement.terms],
        }
        for statement in (rule, *rule.others)
    }
    content = json.dumps(
        {
            "record": json.loads(explanation.to_json()),
            "statements": statements,
            "sentences": SENTENCES,
        }
    )
    safe = content.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return element("script", Markup(safe), type="application/json", id="explanation")


def controls(explanation: Explanation) -> Markup | None:
    """The form; None if the script cannot follow this explanation."""
    if not is_live(explanation):
        return None
    subject = explanation.subject
    name, given = subject.parameters[0]
    assert subject.outcome is not None
    counts = _counts(subject.family, subject.outcome, given.size)
    rows = [
        _category(index, name, value, count, subject.family)
        for index, (value, count) in enumerate(zip(given.values, counts, strict=True))
    ]
    return element(
        "form",
        element("h2", "Change a number", id="controls-heading"),
        element("table", _head(name, subject.family), element("tbody", *rows)),
        _conventions(explanation.rules[0]),
        element("p", "", class_="problem", role="alert", id="problem"),
        element("button", "Put the given numbers back", type="button"),
        id="controls",
        aria_labelledby="controls-heading",
        hidden=True,
    )


def _counts(family: str, outcome: Numbers, categories: int) -> list[int]:
    if family == "Categorical":
        return [int(outcome.values[0] == k) for k in range(categories)]
    return [int(count) for count in outcome.values]


def _head(name: str, family: str) -> Markup:
    titles = ("category", "count" if family == "Multinomial" else "drawn", *_titles(name))
    return element("thead", element("tr", *(element("th", t, scope="col") for t in titles)))


def _titles(name: str) -> tuple[str, str]:
    """What the two columns of numbers are: the parameter itself, and the other way to say it."""
    return ("weight", "its log") if name == "probs" else ("logit", "probability")


def _category(index: int, name: str, value: float, count: int, family: str) -> Markup:
    own, other = (f"{title} of category {index}" for title in _titles(name))
    if family == "Multinomial":
        drawn = element(
            "input", type="number", name=f"count-{index}", value=count, min=0, max=99, step=1,
            required=True, aria_label=f"count of category {index}",
        )  # fmt: skip
    else:
        drawn = element(
            "input", type="radio", name="drawn", value=index, checked=count == 1,
            aria_label=f"category {index} was drawn",
        )  # fmt: skip
    low, high = (0.0, max(1.0, value)) if name == "probs" else (min(-10.0, value), max(10.0, value))
    slider = element(
        "input", type="range", name=f"slider-{index}", min=f"{low:g}", max=f"{high:g}",
        step="any", value=number(value), aria_label=own,
    )  # fmt: skip
    exact = element(
        "input", type="number", name=f"own-{index}", step="any", value=number(value),
        min=0 if name == "probs" else None, required=True, aria_label=own,
    )  # fmt: skip
    derived = element(
        "input", type="number", name=f"other-{index}", step="any", aria_label=other,
    )  # fmt: skip
    cells = (drawn, join(slider, exact), derived)
    return element(
        "tr", element("th", str(index), scope="row"), *(element("td", cell) for cell in cells)
    )


def _conventions(rule: RuleStatement) -> Markup | None:
    """The choice of a convention, where the parameter has several."""
    if not rule.others:
        return None
    names = [column.title for column in rule.conventions.columns] if rule.conventions else []
    choices = [
        element(
            "label",
            element(
                "input", type="radio", name="coordinates", value=name,
                checked=name == rule.coordinates,
            ),
            element("span", name),
        )
        for name in names
    ]  # fmt: skip
    return element("fieldset", element("legend", "convention"), *choices, class_="choices")
