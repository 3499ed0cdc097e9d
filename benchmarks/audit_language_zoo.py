"""Audits every loss of the language zoo in every style; exits with 1 if one is misjudged.

    python -m benchmarks.audit_language_zoo

The tests take each recipe in one or two styles, in turn; this takes all pairs, in about 2 minutes
on one core. A faulty loss is misjudged if its fault is not named or its exit status is not 1; a
clean one if its exit status is not 0.
"""

from __future__ import annotations

import itertools
import sys

from tests.audit.language.zoo.parts import clean_recipes, faulty_recipes
from tests.audit.language.zoo.scoring import Scored, scored
from tests.audit.language.zoo.styles import STYLES


def misjudged(each: Scored) -> bool:
    """Whether the audit said something else than what is expected."""
    if each.rule:
        return each.report.exit_status != 1 or not each.named
    return each.report.exit_status != 0


def main() -> int:
    """Print each half's figures and the losses that were misjudged."""
    wrong = 0
    for name, recipes in (("clean", clean_recipes()), ("faulty", faulty_recipes())):
        found = scored(itertools.product(STYLES, recipes))
        missed = [each for each in found if misjudged(each)]
        print(f"{name}: {len(found) - len(missed)} of {len(found)} judged as expected")
        for each in missed:
            rules = ", ".join(finding.rule for finding in each.report.findings)
            print(
                f"  {each.name}: {each.report.verdict} ({rules}), expected {each.rule or 'clean'}"
            )
        wrong += len(missed)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
