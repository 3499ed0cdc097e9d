"""The whole page, and the compact form for notebooks."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import eligibility
from eligibility.explanation.page import live, sections
from eligibility.explanation.page.markup import Markup, element, join
from eligibility.explanation.page.tables import table_html
from eligibility.explanation.wording import number

if TYPE_CHECKING:
    from eligibility.explanation.derivation import Explanation
    from eligibility.explanation.script import BackwardCall, ScriptExplanation

_SCRIPTS = (
    "numbers.js",
    "rules.js",
    "steps.js",
    "sentences.js",
    "checks.js",
    "tables.js",
    "view.js",
    "controls.js",
)


def render_page(explanation: Explanation) -> str:
    """One self-contained HTML page: no network, and no script needed to read it.

    Where the record is of one outcome of the categorical family, a script lets the reader change
    the numbers.
    """
    controls = live.controls(explanation)
    main = element(
        "main",
        _header(explanation.title),
        *_answer(explanation),
        controls,
        *_derivation(explanation),
        _footer(),
        class_=None if controls is None else "with-controls",
        data_root=True,
    )
    return _document(explanation.title, main, None if controls is None else live.data(explanation))


def render_script(script: ScriptExplanation) -> str:
    """One self-contained HTML page of a script: missing gradients, then each backward pass."""
    title = Path(script.script).name
    known = [call.explanation.by_rule for call in script.calls]
    lively = next((e for e in known if e is not None and live.is_live(e)), None)
    articles = [_article(call, lively) for call in script.calls]
    main = element(
        "main",
        _header(f"The gradients of {title}"),
        sections.missing(script.missing),
        *articles,
        sections.failure(script.failure),
        sections.notes(script.notes),
        _footer(),
    )
    return _document(title, main, None if lively is None else live.data(lively))


def _article(call: BackwardCall, lively: Explanation | None) -> Markup:
    """One backward pass; with controls where its probability or log-probability is the live one."""
    found = call.explanation
    heading = [
        element("h2", element("code", call.code or "backward()"), class_="call"),
        element("p", _where(call), class_="aside"),
    ]
    if lively is None or found.by_rule is not lively:
        return element("article", *heading, *_answer(found), *_derivation(found))
    by_rule = element(
        "div",
        element("p", lively.title, data_live="title"),
        *_answer(lively),
        live.controls(lively),
        *_derivation(lively),
        data_root=True,
    )
    steps = element(
        "details", element("summary", "As the script computed it"), sections.steps(found)
    )
    if found.multiple != 1:
        of, times = found.subject.of, number(found.multiple)
        by_rule = join(
            *_answer(found),
            element("h2", "The log-probability inside"),
            element(
                "p",
                f"{of} is {times} times this log-probability, and each entry of its gradient is "
                f"{times} times the one here. Change a number, and all of this part follows.",
            ),
            by_rule,
        )
    return element("article", *heading, by_rule, steps, sections.notes(found.notes))


def render_notebook(explanation: Explanation) -> str:
    """The gradient, the reason and the rule, in a notebook's own colours; no script."""
    return element(
        "div",
        element("style", _asset("style.css")),
        element("p", element("strong", explanation.title)),
        *map(table_html, explanation.tables),
        sections.why(explanation),
        sections.rules(explanation),
        sections.checks(explanation),
        class_="eligibility notebook",
    )


def _document(title: str, main: Markup, data: Markup | None = None) -> str:
    """The page around ``main``; its own policy forbids every other script, style and connection."""
    style = _asset("style.css")
    script = None if data is None else _script()
    allowed = "'none'" if script is None else f"'{_digest(script)}'"
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src {allowed}; "
        "base-uri 'none'; form-action 'none'"
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        element("style", style),
    )
    scripts = [data, None if script is None else element("script", script)]
    body = element("body", main, *scripts, class_="eligibility page")
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def _header(title: str) -> Markup:
    kicker = "eligibility · where every entry of a gradient comes from"
    return element("header", element("p", kicker, class_="kicker"), element("h1", title))


def _answer(explanation: Explanation) -> list[Markup | None]:
    """What the reader came for."""
    return [sections.gradient(explanation), sections.why(explanation)]


def _derivation(explanation: Explanation) -> list[Markup | None]:
    """How it comes about."""
    return [
        sections.steps(explanation),
        sections.rules(explanation),
        sections.checks(explanation),
        sections.expected(explanation),
        sections.notes(explanation.notes),
    ]


def _where(call: BackwardCall) -> str:
    if not call.place:
        return "never called; this is what it would give"
    times = f", called {call.times} times; this is the first" if call.times > 1 else ""
    return f"{call.place}{times}"


def _footer() -> Markup:
    return element("footer", element("p", f"Made by eligibility {eligibility.__version__}."))


def _asset(name: str) -> Markup:
    """The text of a file of this package, which is safe to embed as it is."""
    return Markup((files(__package__) / "assets" / name).read_text(encoding="utf-8"))


def _script() -> Markup:
    """The script's files in a separate scope."""
    return Markup("(() => {\n'use strict';\n" + join(*map(_asset, _SCRIPTS)) + "})();\n")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
