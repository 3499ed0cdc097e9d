"""What MkDocs does beyond its plugins: help texts of the command line, formulas, notebooks."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import PurePosixPath
from typing import Any

import nbformat
from latex2mathml.converter import convert
from mkdocs.structure.files import File
from notebooks import notebook_of

_FIRST_WORDS = re.compile(r"^\*.*\*$", flags=re.MULTILINE)  # how long it takes, what it needs
_FORMULA = re.compile(r"^```math\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
_WIDE = re.compile(r"^\|(?:[ :]?-+[ :]?\|){7}", flags=re.MULTILINE)  # a table of seven columns
_HELP = re.compile(r"^<!-- (eligibility[\w ]* --help) -->$", flags=re.MULTILINE)


def on_files(files: Any, *, config: Any, **_: Any) -> Any:
    """The files of the site, and a notebook next to each tutorial."""
    for page in [file for file in files if _is_tutorial(file.src_uri)]:
        content = nbformat.writes(notebook_of(page.content_string))
        files.append(File.generated(config, _notebook(page.src_uri), content=content))
    return files


def _is_tutorial(page: str) -> bool:
    path = PurePosixPath(page)
    return path.match("learn/*.md") and path.name != "README.md"


def _notebook(page: str) -> str:
    return str(PurePosixPath(page).with_suffix(".ipynb"))


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """The page with what takes the place of its help comments and of its formulas.

    ``<!-- eligibility VERB --help -->`` becomes what the command prints, a ``math`` block becomes
    MathML, which browsers draw without a script. A tutorial has a link to its notebook. A wide
    table has the width of the table of contents as well.
    """
    if _WIDE.search(markdown):
        page.meta.setdefault("hide", []).append("toc")
    if _is_tutorial(page.file.src_uri):
        name = PurePosixPath(_notebook(page.file.src_uri)).name
        link = f"[Download it as a notebook]({name}){{ download }}"
        markdown = _FIRST_WORDS.sub(lambda found: f"{found[0]} {link}", markdown, count=1)
    markdown = _FORMULA.sub(_formula, markdown)
    return _HELP.sub(lambda found: f"```text\n{_output_of(found[1])}```", markdown)


def _formula(found: re.Match[str]) -> str:
    """A formula; one that is wider than the page scrolls by itself."""
    drawn = convert(found[1].strip(), display="block")
    return f'<div class="formula">{drawn}</div>'


def on_post_page(output: str, *, page: Any, **_: Any) -> str:
    """The page without its one request to another machine: the search's shim lies next to it."""
    return _with_own_shim(output, "../" * page.url.count("/"))


def on_post_template(output: str, *, template_name: str, **_: Any) -> str:
    """The same for what is not a page: 404.html."""
    return _with_own_shim(output, "") if template_name.endswith(".html") else output


def _with_own_shim(output: str, up: str) -> str:
    return output.replace("https://unpkg.com/iframe-worker/shim", f"{up}assets/iframe-worker.js")


def _output_of(command: str) -> str:
    finished = subprocess.run(
        [sys.executable, "-m", *command.split()], capture_output=True, text=True, check=True
    )
    return finished.stdout.replace("python -m eligibility", "eligibility")
