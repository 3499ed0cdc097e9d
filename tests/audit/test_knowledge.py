"""Every rule that a report can name is explained."""

from __future__ import annotations

from pathlib import Path

import pytest

from eligibility.audit.judgement.catalogue import CREDITS
from eligibility.audit.judgement.critic import ENDINGS
from eligibility.audit.judgement.knowledge import CONVENTIONS, FAULTS

PAGES = Path(__file__).parents[2] / "docs" / "audit"


@pytest.mark.parametrize("rule", FAULTS)
def test_every_fault_has_a_page_with_its_fix(rule: str) -> None:
    text = (PAGES / f"{rule}.md").read_text(encoding="utf-8")
    assert f"`{rule}`" in text
    assert FAULTS[rule].fix in text


def test_every_part_of_the_catalogue_is_explained() -> None:
    names = {credit.rule for credit in CREDITS if credit.rule} | set(ENDINGS[1:])
    assert names <= set(FAULTS) | set(CONVENTIONS)
