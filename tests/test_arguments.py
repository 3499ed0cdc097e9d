"""The table of arguments is what is checked, what the docstrings say, and what the page shows."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import eligibility as el
from docs.reference.arguments import page
from eligibility.arguments import TENSORS
from eligibility.scalars import CHOICES, NUMBERS
from tests import wrong_calls

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """What a process of its own found; a signal ends that one, and says after which call."""
    command = [sys.executable, "-m", "tests.wrong_calls"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert result.returncode == 0, result.stderr[-2000:]
    answer: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return answer


def test_every_wrong_call_is_refused_in_our_words(found: dict[str, Any]) -> None:
    assert found["calls"] >= 1500
    assert found["wrong"] == {}


def test_every_public_callable_is_walked() -> None:
    public = {name for name in el.__all__ if callable(getattr(el, name))}
    walked = {*wrong_calls.BASE} | wrong_calls.ELSEWHERE
    missing = public - walked
    assert not missing, f"add a right call of {missing} to BASE of tests/wrong_calls.py"
    assert not walked - public
    text = inspect.getsource(wrong_calls.written_out) + inspect.getsource(wrong_calls.trained)
    text += inspect.getsource(wrong_calls.audited)
    unread = {name for name in wrong_calls.ELSEWHERE - WITHOUT if f"el.{name}" not in text}
    assert unread == set()


# They take nothing, or are records whose numbers come from us.
WITHOUT = {
    "CategoricalStatistics", "LinearStatistics", "LinearReference", "Explanation", "AuditReport",
    "TokenBatch",
    "release_memory", "supported_distributions", "record", "NoBaseline", "Callback",
    "TimeDependentLeaveOneOut",
}  # fmt: skip


def arguments_of(function: Any) -> dict[str, str]:
    """The entries of a docstring's list of arguments; what is "As …" elsewhere is left out."""
    body = re.search(r"^ *Args:\n(.*?)\n\n", inspect.getdoc(function) or "", re.M | re.S)
    assert body is not None, f"{function.__name__} lists no arguments"
    entries = re.split(r"\n(?=    \w)", "\n" + body[1])[1:]
    found = {}
    for entry in entries:
        names, _, text = entry.strip().partition(":")
        found |= {name.strip(): " ".join(text.split()) for name in names.split(",")}
    return {name: text for name, text in found.items() if not text.startswith("As ")}


DOCUMENTED = [
    name
    for name in [*wrong_calls.BASE, "linear_statistics"]
    if {*inspect.signature(getattr(el, name)).parameters} & ({*NUMBERS} | {*TENSORS} | {*CHOICES})
]


@pytest.mark.parametrize("name", DOCUMENTED)
def test_docstrings_state_the_domains_of_the_table(name: str) -> None:
    for argument, text in arguments_of(getattr(el, name)).items():
        if argument in NUMBERS:
            short = NUMBERS[argument].domain.short
            assert short in text, f"{name}({argument}): {text!r} does not say {short!r}"
        if argument in CHOICES and name != "reinforce_gradient":
            for word in CHOICES[argument]:
                assert f'"{word}"' in text, f"{name}({argument}): {word!r} is not mentioned"


@pytest.mark.parametrize("name", DOCUMENTED)
def test_every_argument_of_a_call_is_walked(name: str) -> None:
    given = {*inspect.signature(getattr(el, name)).parameters}
    unknown = given - {*wrong_calls.BASE[name]} - NOT_WALKED
    assert unknown == set()


# Written out by hand, because each is wrong in its own ways.
NOT_WALKED = {
    "counts", "generator", "reuse_logits", "ref_logits", "group", "reference", "logits",
    "validate_args",
}  # fmt: skip


def test_the_page_is_written_from_the_table() -> None:
    written = ROOT / "docs" / "reference" / "arguments.md"
    assert written.read_text("utf-8") == page(), "run python -m docs.reference.arguments"
