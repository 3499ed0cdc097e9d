"""The whole page, and the compact form for notebooks."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files

import eligibility
from eligibility.explanation.derivation import Explanation
from eligibility.explanation.page import live, sections
from eligibility.explanation.page.markup import Markup, element, join
from eligibility.explanation.page.tables import table_html

_SCRIPTS = ("numbers.js", "rules.js", "steps.js", "sentences.js", "checks.js", "view.js")


def render_page(explanation: Explanation) -> str:
    """One self-contained HTML page: no network, and no script needed to read it.

    Where the record is of one outcome of the categorical family, a script lets the reader change
    the numbers. The page's own policy forbids every other script, style and connection.
    """
    style = _asset("style.css")
    controls = live.controls(explanation)
    scripts = [] if controls is None else [live.data(explanation), element("script", _script())]
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(_script())}'; "
        "base-uri 'none'; form-action 'none'"
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", explanation.title),
        element("style", style),
    )
    body = element("body", _main(explanation, controls), *scripts, class_="eligibility page")
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


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


def _main(explanation: Explanation, controls: Markup | None) -> Markup:
    header = element(
        "header",
        element("p", "eligibility · where every entry of a gradient comes from", class_="kicker"),
        element("h1", explanation.title),
    )
    footer = element("footer", element("p", f"Made by eligibility {eligibility.__version__}."))
    return element(
        "main",
        header,
        sections.gradient(explanation),
        sections.why(explanation),
        controls,
        sections.steps(explanation),
        sections.rules(explanation),
        sections.checks(explanation),
        sections.expected(explanation),
        sections.notes(explanation),
        footer,
        class_=None if controls is None else "with-controls",
    )


def _asset(name: str) -> Markup:
    """The text of a file that is part of this package, and so of nobody else's making."""
    return Markup((files(__package__) / "assets" / name).read_text(encoding="utf-8"))


def _script() -> Markup:
    """The script's files in one scope of their own."""
    return Markup("(() => {\n'use strict';\n" + join(*map(_asset, _SCRIPTS)) + "})();\n")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
