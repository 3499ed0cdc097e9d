"""Entropies of some states only, added and subtracted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.audit.writing import LOSS, audited

KEPT = (
    ("    log_probs, rewards", "    kept = []\n    log_probs, rewards"),
    ("        action = dist", "        kept.append(dist.entropy())\n        action = dist"),
)


@pytest.mark.parametrize("which", ["kept[-1]", "kept[0]", "sum(kept) / len(kept)"])
@pytest.mark.parametrize(
    ("sign", "verdict", "rules"), [("-", "convention", []), ("+", "biased", ["entropy-sign"])]
)
def test_the_entropy_of_any_states_is_a_bonus_or_a_fault(
    which: str, sign: str, verdict: str, rules: list[str], tmp_path: Path
) -> None:
    report = audited(tmp_path, *KEPT, (LOSS, f"{LOSS} {sign} 0.1 * {which}"))
    assert report.verdict == verdict, report.text()
    assert [fault.rule for fault in report.faults] == rules
    assert "entropy" in report.rule


def test_a_small_entropy_counts_where_it_explains_all_that_is_left(tmp_path: Path) -> None:
    report = audited(tmp_path, *KEPT, (LOSS, f"{LOSS} - 1e-7 * sum(kept)"))
    assert report.verdict == "convention", report.text()
    assert [c.name for c in report.conventions] == ["entropy-bonus"], report.text()
