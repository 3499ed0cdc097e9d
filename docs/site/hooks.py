"""What MkDocs does beyond its plugins: today's help texts of the command line, and formulas."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

from latex2mathml.converter import convert

_FORMULA = re.compile(r"^```math\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
_HELP = re.compile(r"^<!-- (eligibility[\w ]* --help) -->$", flags=re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page with what takes the place of its help comments and of its formulas.

    ``<!-- eligibility VERB --help -->`` becomes what the command prints, a ``math`` block becomes
    MathML, which browsers draw without a script.
    """
    markdown = _FORMULA.sub(lambda found: convert(found[1].strip(), display="block"), markdown)
    return _HELP.sub(lambda found: f"```text\n{_output_of(found[1])}```", markdown)


def on_post_page(output: str, *, page: Any, **_: Any) -> str:
    """The page without its one request to another machine: the search's shim lies beside it."""
    return _with_own_shim(output, "../" * page.url.count("/"))


def on_post_template(output: str, *, template_name: str, **_: Any) -> str:
    """The same for what is no page: 404.html."""
    return _with_own_shim(output, "") if template_name.endswith(".html") else output


def _with_own_shim(output: str, up: str) -> str:
    return output.replace("https://unpkg.com/iframe-worker/shim", f"{up}assets/iframe-worker.js")


def _output_of(command: str) -> str:
    finished = subprocess.run(
        [sys.executable, "-m", *command.split()], capture_output=True, text=True, check=True
    )
    return finished.stdout.replace("python -m eligibility", "eligibility")
