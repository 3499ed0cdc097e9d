"""Every fault and every choice that a report can name is explained, and its page is up to date."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.audit.faults import pages
from eligibility.audit.faults import (
    CHOICES,
    FAULTS,
    credit,
    failures,
    language,
    scoring,
    updates,
    values,
)
from eligibility.audit.judgement.advantage import ENDINGS
from eligibility.audit.judgement.credits import CREDITS

PAGES = pages()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_the_committed_page_is_the_one_that_the_records_make(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == PAGES[path], "run python -m docs.audit.faults"


def test_no_id_stands_twice() -> None:
    families = [m.FAULTS for m in (credit, failures, language, scoring, updates, values)]
    ids = [*(record.id for records in families for record in records), *CHOICES]
    assert len(ids) == len(set(ids))


def test_every_part_of_the_catalogue_is_explained() -> None:
    names = {credit.rule for credit in CREDITS if credit.rule} | set(ENDINGS[1:])
    assert names <= set(FAULTS) | set(CHOICES)
