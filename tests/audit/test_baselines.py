"""Baselines that know what they are subtracted from, and those that do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.audit.test_second_update import KEPT, LOSS, audit, line_of

_USED = LOSS.replace("returns)", "(returns - mean))")
_MOVED = {
    "average of returns": "    mean = 0.9 * mean + 0.1 * returns.mean().item()\n",
    "first of the returns": "    mean += 0.1 * (returns[0].item() - mean)\n",
    "sum of rewards": "    mean += (float(np.sum(rewards)) - mean) / (episode + 2)\n",
}
_START = ("for episode in", "import numpy as np\nmean = 0.0\nfor episode in")


@pytest.mark.parametrize("kind", _MOVED)
def test_a_baseline_that_has_taken_in_the_own_return_is_found_where_it_did(
    kind: str, tmp_path: Path
) -> None:
    report = audit(tmp_path, KEPT, _START, (LOSS, _MOVED[kind] + _USED))
    assert [finding.rule for finding in report.findings] == ["baseline-sees-own-return"]
    assert report.findings[0].line == line_of(tmp_path / "program.py", _MOVED[kind].strip())
    assert report.verdict == "biased"
    share = "0.5" if kind == "sum of rewards" else "0.1"
    assert f"reward-to-go minus {share} × the batch's own mean" in report.rule


def test_a_baseline_that_takes_it_in_afterwards_is_none_of_them(tmp_path: Path) -> None:
    report = audit(tmp_path, KEPT, _START, (LOSS, _USED + _MOVED["first of the returns"]))
    assert report.verdict == "unbiased", report.text()
    assert not report.findings
