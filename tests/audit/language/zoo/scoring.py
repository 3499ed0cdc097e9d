"""Recipes in a style, audited on the smallest language in which they show."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import eligibility as el
from eligibility.audit.reporting.report import AuditReport
from tests.audit.language.zoo.parts import Recipe
from tests.audit.language.zoo.styles import STYLES

SIZES: dict[str, Any] = {"prompts": 2, "group_size": 2, "length": 2, "vocabulary": 2}
PATHS = 170  # one policy, with its rewards and with their negatives


@dataclass(frozen=True)
class Scored:
    """A recipe in a style.

    Attributes:
        name: Of both.
        rule: The fault that is expected; "" for a clean recipe.
        report: What the audit said.
    """

    name: str
    rule: str
    report: AuditReport

    @property
    def named(self) -> bool:
        """Whether the fault that is expected was found."""
        return self.rule in [finding.rule for finding in self.report.findings]


def scored(pairs: Iterable[tuple[str, Recipe]]) -> list[Scored]:
    """The reports on recipes, each in the style of this name."""
    return [
        Scored(
            f"{style}: {recipe.name}",
            recipe.rule,
            el.audit_token_loss(**STYLES[style](recipe), **SIZES, max_paths=PATHS),
        )
        for style, recipe in pairs
    ]
