"""The page of audited trainers shows the results that are committed, and every entry was read."""

from __future__ import annotations

import json

import pytest

from benchmarks.audit_language import PAGE, READINGS, RESULTS, agrees, entries, key_of
from benchmarks.language.loading import Anything
from benchmarks.language.page import page


def test_the_page_is_up_to_date() -> None:
    records = {record["entry"]: record for record in json.loads(RESULTS.read_text("utf-8"))}
    every = entries()
    ordered = [records.get(key_of(entry)) for entry in every]
    readings = json.loads(READINGS.read_text("utf-8"))
    assert PAGE.read_text(encoding="utf-8") == page(every, ordered, readings, agrees)


def test_every_entry_has_one_reading_and_each_reading_an_entry() -> None:
    keys = [key_of(entry) for entry in entries()]
    assert len(keys) == len(set(keys))
    assert set(keys) == set(json.loads(READINGS.read_text("utf-8")))


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"verdict": "convention", "conventions": [["whitened", 0.1]]}, True),
        ({"verdict": "unbiased", "conventions": [["whitened", 0.1]]}, False),
        ({"verdict": "convention", "conventions": []}, False),
        ({"verdict": "error"}, False),
    ],
)
def test_a_convention_agrees_if_verdict_and_name_do(
    record: dict[str, object], expected: bool
) -> None:
    reading = {"verdict": "convention", "rules": [], "conventions": ["whitened"]}
    assert agrees(record, reading) is expected


def test_a_fault_agrees_if_it_is_named() -> None:
    reading = {"verdict": "biased", "rules": ["kl-forward"], "conventions": []}
    found = {"verdict": "biased", "findings": [["kl-forward", "fault", ""]]}
    other = {"verdict": "biased", "findings": [["unexplained", "fault", ""]]}
    assert agrees(found, reading)
    assert not agrees(other, reading)


def test_a_stand_in_accepts_what_is_done_at_import() -> None:
    absent = Anything()

    @absent.remote
    def decorated() -> int:
        return 1

    class Derived(absent.Base, absent.Mixin):
        pass

    assert decorated() == 1
    assert Derived(value=2).value == 2
    assert not absent.is_there
