"""The site knows everything that is public."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

import eligibility as el
from eligibility.cli.app import app
from tests.test_layering import LAYERS

DOCS = Path(__file__).parents[2] / "docs"
REFERENCE = "\n".join(page.read_text(encoding="utf-8") for page in DOCS.glob("reference/*.md"))


def resolve(path: str) -> object:
    """The object that a line ``::: package.module.name`` of the reference stands for."""
    try:
        return import_module(path)
    except ModuleNotFoundError:
        module, _, name = path.rpartition(".")
        return getattr(import_module(module), name)


DOCUMENTED = [resolve(path) for path in re.findall(r"^::: (\S+)$", REFERENCE, flags=re.MULTILINE)]


@pytest.mark.parametrize("name", [name for name in el.__all__ if name != "__version__"])
def test_every_public_name_is_in_the_reference(name: str) -> None:
    listed = any(getattr(el, name) is documented for documented in DOCUMENTED)
    assert listed, f"add a line `::: module.{name}` to a page of docs/reference"


def test_every_verb_is_in_the_reference() -> None:
    verbs = {command.name or command.callback.__name__ for command in app.registered_commands}
    shown = re.findall(r"^<!-- eligibility (\w+) --help -->$", REFERENCE, flags=re.MULTILINE)
    assert set(shown) == verbs


def test_the_picture_of_the_layers_shows_all_of_them() -> None:
    picture = (DOCS / "images" / "layers.svg").read_text(encoding="utf-8")
    names = set(re.findall(r'class="name"[^>]*>(\w+)<', picture))
    assert names == set(LAYERS) - {"__main__"}
