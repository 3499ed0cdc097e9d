"""The generated table of the documentation is the one that the rules generate now."""

from __future__ import annotations

import runpy
from pathlib import Path

from eligibility.rules.registry import shipped_distributions

DOCS = Path(__file__).parents[2] / "docs"


def test_table_of_distributions_is_current() -> None:
    """If this fails: ``python docs/distributions.py``."""
    render = runpy.run_path(str(DOCS / "distributions.py"))["render"]
    assert (DOCS / "distributions.md").read_text(encoding="utf-8") == render()


def test_report_of_exactness_names_every_scalar_and_vector_distribution() -> None:
    """If this fails: ``python -m benchmarks.exactness``."""
    report = (DOCS / "exactness_tables.md").read_text(encoding="utf-8")
    # The first two are measured as what the relaxed laws are made of, the third as its base.
    same = {"LogitRelaxedBernoulli", "ExpRelaxedCategorical", "OneHotCategoricalStraightThrough"}
    for cls in shipped_distributions():
        if cls.__name__ not in same | {"Independent"}:
            assert f"| {cls.__name__}" in report
