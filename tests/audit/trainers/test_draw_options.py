"""The line of what changes a draw, wherever a program writes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from eligibility.audit.trainers.draw_options import CUTS_OFF, line_of_option
from eligibility.audit.user_code import asking_place

IN_THE_CALL = """
ids = model.generate(
    **inputs,
    do_sample=True,
    temperature=1.0,
    top_p=0.9,  # option
)
"""
IN_A_DICTIONARY = """
def draw(model, inputs, temperature):
    options = {"do_sample": True}
    options["temperature"] = temperature  # option
    return model.generate(**inputs, **options)
"""
IN_A_CONFIGURATION = """
asked = GenerationConfig(
    do_sample=True,
    top_k=20,  # option
)
ids = model.generate(**inputs, generation_config=asked)
"""
NOWHERE = """
others = dict(temperature=0.5)
ids = model.generate(**inputs)  # option
"""


@pytest.mark.parametrize("text", [IN_THE_CALL, IN_A_DICTIONARY, IN_A_CONFIGURATION, NOWHERE])
def test_the_option_has_its_line(text: str, tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(text)
    lines = text.splitlines()
    call = next(n for n, line in enumerate(lines, 1) if "generate(" in line)
    wanted = next(n for n, line in enumerate(lines, 1) if "# option" in line)
    assert line_of_option(file, call) == wanted


def test_a_temperature_cuts_nothing_off(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(IN_A_DICTIONARY)
    call = IN_A_DICTIONARY.splitlines().index("    return model.generate(**inputs, **options)") + 1
    assert line_of_option(file, call, CUTS_OFF) == call


def test_a_function_that_hands_on_its_arguments_is_not_what_asks() -> None:
    def generate(*args: object, **options: object) -> tuple[tuple[str, int], object, object]:
        return asking_place(), args, options

    def asks(temperature: float) -> tuple[str, int]:
        return generate(temperature=temperature)[0]

    assert asks(0.7) == (__file__, asks.__code__.co_firstlineno + 1)
