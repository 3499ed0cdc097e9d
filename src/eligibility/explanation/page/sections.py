"""The sections of the page, one function a section; nothing is computed here."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from eligibility.explanation.elements import (
    Check,
    Edge,
    Expectation,
    Leaf,
    Numbers,
    RuleStatement,
    Source,
    Step,
)
from eligibility.explanation.page.markup import Markup, element, join
from eligibility.explanation.page.mathml import math
from eligibility.explanation.page.picture import picture
from eligibility.explanation.page.tables import table_html
from eligibility.explanation.wording import summary

if TYPE_CHECKING:
    from eligibility.explanation.derivation import Explanation
    from eligibility.explanation.script import MissingGradient


def section(name: str, heading: str, *body: Markup | None) -> Markup | None:
    """A section with its heading, or None if it is empty.

    It has no ``id``: a notebook shows many explanations in one document.
    """
    if not any(body):
        return None
    title = element("h2", heading)
    return element("section", title, *body, data_section=name, aria_label=heading)


def gradient(explanation: Explanation) -> Markup | None:
    """The tables: what the reader came for."""
    return section("gradient", "The gradient", *map(table_html, explanation.tables))


def why(explanation: Explanation) -> Markup | None:
    """The reason in words; announced when a control changes it."""
    sentences = [element("p", sentence) for sentence in explanation.why]
    if not sentences:
        return None
    return section("why", "Why", element("div", *sentences, class_="lede", aria_live="polite"))


def steps(explanation: Explanation) -> Markup | None:
    """The graph as a picture, then every step in words, as the gradient meets them."""
    if not explanation.steps:
        return None
    names = {step.id: step.name for outer in explanation.steps for step in outer.unfolded()}
    listed = [_step(step, names) for step in reversed(explanation.steps)]
    return section(
        "steps",
        "The steps",
        picture(explanation),
        element(
            "details",
            element("summary", f"Each of the {len(listed)} steps, the last one first"),
            element("ol", *listed, class_="steps"),
            *map(_leaf, explanation.leaves),
        ),
    )


def rules(explanation: Explanation) -> Markup | None:
    """Each closed form with the user's numbers put in."""
    return section("rule", "The rule", *map(_rule, explanation.rules))


def checks(explanation: Explanation) -> Markup | None:
    """What was computed to hold, failures as visible as successes."""
    if not explanation.checks:
        return None
    items = element("ul", *map(_check, explanation.checks), class_="checks")
    return section("checks", "Checks", items)


def expected(explanation: Explanation) -> Markup | None:
    """Wrong expectations that apply, and their answers."""
    return section("expected", "You expected", *map(_expectation, explanation.expected))


def notes(sentences: tuple[str, ...]) -> Markup | None:
    """What a reader must know about how this was found."""
    return section("notes", "Notes", *(element("p", _code(note)) for note in sentences))


def missing(gradients: tuple[MissingGradient, ...]) -> Markup | None:
    """Why gradients that a script looked for are None."""
    if not gradients:
        return None
    items = [
        part
        for gradient in gradients
        for part in (
            element("dt", element("code", f"{gradient.name}.grad"), f", {gradient.place}"),
            element("dd", _code(gradient.reason)),
        )
    ]
    return section("missing", "Why .grad is None", element("dl", *items))


def failure(text: str) -> Markup | None:
    """Why a script did not run to its end."""
    return section("failure", "The script failed", element("pre", text)) if text else None


def _keyed(numbers: Numbers | None, key: str) -> Markup:
    """Numbers that the script keeps up to date under ``key``."""
    return element("output", summary(numbers), class_="numbers", data_key=key)


def _step(step: Step, names: dict[str, str]) -> Markup:
    heading = element(
        "h3", step.name, " ", element("span", step.id, class_="id"), class_="step-name"
    )
    formula = None
    if step.formula:  # what is folded for its length has a list of operations there
        formula = math(step.formula) if step.operation else element("span", step.formula)
    value = element(
        "p", formula, " = " if formula else "= ", _keyed(step.value, f"{step.id}.value")
    )
    arrives = element("p", "gradient that arrives: ", _keyed(step.gradient, f"{step.id}.gradient"))
    edges = [_edge(step.id, index, edge, names) for index, edge in enumerate(step.edges)]
    inner = None
    if step.inner:
        folded = [_step(part, names) for part in step.inner]
        inner = element(
            "details",
            element("summary", f"{len(folded)} operations folded into this step"),
            element("ol", *reversed(folded), class_="steps"),
        )
    sources = element("div", *map(_source, step.sources), class_="sources")
    passed_on = element("ul", *edges) if edges else None
    return element(
        "li", heading, value, arrives, passed_on, inner, sources if step.sources else None
    )


def _edge(step: str, index: int, edge: Edge, names: dict[str, str]) -> Markup:
    target = names.get(edge.target)
    where = f"{target} {edge.target}" if target else edge.target or "outside this graph"
    factor = math(edge.factor) if edge.factor else None
    return element(
        "li",
        join("× ", factor) if factor else None,
        " gives ",
        _keyed(edge.gradient, f"{step}.edge.{index}"),
        f" to {where}",
    )


def _leaf(leaf: Leaf) -> Markup:
    """The sum of what arrives at a leaf: the point of the whole."""
    if leaf.gradient is None:
        return element("p", element("code", leaf.name), " receives no gradient.")
    summands: list[Markup] = []
    for index, part in enumerate(leaf.contributions):
        summands += [
            element("dt", "+" if index else "", " ", part.through),
            element("dd", _keyed(part.gradient, f"{leaf.id}.contribution.{index}")),
        ]
    total = [
        element("dt", "= gradient of ", element("code", leaf.name)),
        element("dd", _keyed(leaf.gradient, f"{leaf.id}.gradient")),
    ]
    return element("dl", *summands, *total, class_="sum")


def _rule(rule: RuleStatement) -> Markup:
    equation = element(
        "div", math(rule.equation, display=True), class_="equation", data_live="equation"
    )
    terms: list[Markup] = []
    for term in rule.terms:
        if term.kind == "summand":
            named: Markup = element("dt", term.symbol)
        else:
            named = element("dt", element("var", term.symbol), f" = {term.meaning}")
        terms += [named, element("dd", element("output", summary(term.value), class_="numbers"))]
    result = element("output", summary(rule.result), class_="numbers result")
    source = element("p", f"{rule.name}; {rule.reference}", class_="aside", data_live="reference")
    return element(
        "div",
        equation,
        element("dl", *terms, element("dt", "gives"), element("dd", result), class_="terms"),
        source,
        table_html(rule.conventions) if rule.conventions is not None else None,
        class_="rule",
    )


def _check(check: Check) -> Markup:
    mark = element("span", "✓" if check.passed else "✗", aria_hidden="true", class_="mark")
    spoken = element("span", "passes: " if check.passed else "fails: ", class_="spoken")
    sign = "≤" if check.passed else "not within"
    measured = f"off by {check.deviation:.1e} {sign} {check.tolerance:.1e}"
    detail = f"{measured}; {check.detail}" if check.detail else measured
    return element(
        "li",
        mark,
        spoken,
        element("span", check.statement, class_="statement"),
        " ",
        element("span", detail, class_="aside"),
        class_="passes" if check.passed else "fails",
    )


def _expectation(item: Expectation) -> Markup:
    more = ""
    if item.question:
        more = f" More: `eligibility explain --question {item.question}`"
    return element(
        "div",
        element("p", element("em", item.expected)),
        element("p", _code(item.answer + more)),
        class_="expectation",
    )


def _source(source: Source) -> Markup:
    where = element("span", source.place, class_="where")
    return element("p", where, " ", element("code", source.code), class_=source.role)


def _code(text: str) -> Markup:
    """Text in which `backticks` mark code."""
    parts = re.split(r"`([^`]*)`", text)
    return join(*(element("code", part) if i % 2 else part for i, part in enumerate(parts)))
