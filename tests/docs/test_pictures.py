"""README's pictures show what the commands print today; times may differ."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

from docs import pictures

DOCS = Path(__file__).parents[2] / "docs"


def words(svg: str) -> str:
    """What stands in a picture, without times: they are the only numbers that may change."""
    found = html.unescape("".join(re.findall(r">([^<>]*)</text>", svg))).replace("\xa0", " ")
    times = r"([\d.,]+ (h|min) )?[\d.,]+ ?(/s|s|ms|µs|min)\b"  # 60 s, and 1 min 05 s
    return re.sub(r"\s+", " ", re.sub(times, "TIME", found))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("pictures")
    (made / "reinforce.py").write_text(pictures.PROGRAM, encoding="utf-8")
    return made


@pytest.mark.parametrize("picture", pictures.PICTURES, ids=lambda picture: picture.name)
def test_a_picture_is_what_its_command_prints(picture, folder: Path) -> None:
    if picture.name == "evaluate" and not (folder / "runs").exists():  # what is trained before it
        train = next(each for each in pictures.PICTURES if each.name == "train")
        pictures.printed(train.command, str(folder))
    drawn = pictures.drawn(picture, pictures.printed(picture.command, str(folder)))
    committed = (DOCS / "images" / f"{picture.name}.svg").read_text(encoding="utf-8")
    assert words(committed) == words(drawn), "run `python docs/pictures.py`, and look at them"
