"""The committed figures show the numbers that the library computes today."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

THEORY = Path(__file__).parents[2] / "docs" / "theory"
SVG = "{http://www.w3.org/2000/svg}"
# the text of a chapter -> the module that draws its figures, their names
CHAPTERS = {
    "characteristic_eligibility": (
        "figures",
        ("coin", "edges", "conventions", "logits", "baselines", "saturation"),
    ),
    "policy_gradient_of_a_language_model": (
        "language_figures",
        ("groups", "penalties", "credit", "drift"),
    ),
}
FIGURES = [(module, name) for module, names in CHAPTERS.values() for name in names]
NAMES = [name for _, name in FIGURES]


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> dict[str, ModuleType]:
    """The modules that draw, imported as a run in their folder imports them."""
    pytest.importorskip("matplotlib")
    monkeypatch.syspath_prepend(str(THEORY))
    return {module: importlib.import_module(module) for module, _ in CHAPTERS.values()}


def numbers_in(path: Path) -> dict[str, list[float]]:
    """The numbers in the metadata of a figure."""
    description = ElementTree.parse(path).find(".//{http://purl.org/dc/elements/1.1/}description")
    assert description is not None
    assert description.text is not None
    numbers: dict[str, list[float]] = json.loads(description.text)
    return numbers


def texts_in(path: Path) -> list[str]:
    """The words of a figure, in drawing order."""
    return ["".join(text.itertext()) for text in ElementTree.parse(path).iter(f"{SVG}text")]


@pytest.mark.parametrize(("module", "name"), FIGURES)
def test_committed_figure_is_what_is_drawn_today(
    module: str, name: str, modules: dict[str, ModuleType], tmp_path: Path
) -> None:
    committed = THEORY / "figures" / f"{name}.svg"
    drawing = modules[module].FIGURES[name]
    drawn = modules["figures"].write_figure(name, drawing, tmp_path)
    assert texts_in(committed) == texts_in(drawn)
    wanted, got = numbers_in(committed), numbers_in(drawn)
    assert wanted.keys() == got.keys()
    for series, values in wanted.items():
        # The files round to 5 significant digits; 1e-6 is the float32 rounding of `saturation`.
        assert values == pytest.approx(got[series], rel=5e-5, abs=1e-6), series


@pytest.mark.parametrize("name", NAMES)
def test_committed_figure_is_small_and_needs_no_network(name: str) -> None:
    path = THEORY / "figures" / f"{name}.svg"
    assert path.stat().st_size < 100_000
    links = [
        value
        for element in ElementTree.parse(path).iter()
        for key, value in element.attrib.items()
        if key.endswith("href")
    ]
    assert all(link.startswith("#") for link in links)


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_every_figure_is_shown_in_its_chapter(chapter: str, modules: dict[str, ModuleType]) -> None:
    module, names = CHAPTERS[chapter]
    text = (THEORY / f"{chapter}.md").read_text(encoding="utf-8")
    assert set(modules[module].FIGURES) == set(names)
    for name in names:
        assert f"](figures/{name}.svg)" in text
