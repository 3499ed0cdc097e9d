"""Forty programs of different styles: what is said of each was written down before it was run.

The first lines of a script say which rules must be named, what was drawn, and what must stand on
the first screen. The forum's own two snippets are as they were posted.
"""

from __future__ import annotations

import json
import multiprocessing
import re
import warnings
from pathlib import Path

import pytest

from eligibility.explanation import child
from eligibility.explanation.script import (
    LANDLOCK,
    Run,
    ScriptExplanation,
    explain_script,
    read_report,
)

SCRIPTS = Path(__file__).parent / "scripts"
EXPECTED = {
    path.stem: dict(re.findall(r"^# (rule|outcome|says): (.*)$", path.read_text("utf-8"), re.M))
    for path in sorted(SCRIPTS.glob("*.py"))
}
FORUM = {
    "rule": "categorical, unnormalised weights",
    "outcome": "0",
    "says": "0.3100 | -0.6900 | ∂ prob / ∂ probs | through the sum each gets -0.69",
}
EXPECTED |= {"forum_with_backward": FORUM, "forum_without_backward": FORUM}
# A gradient through the sample is explained edge by edge; no rule of a distribution is named yet.
MISSED = {"pathwise_mean_plus_noise"}
# A clamp of torch is what this one asks about: there rule and autograd differ.
DISAGREES = {"saturated_probs"}


def explained(path: Path, folder: Path) -> ScriptExplanation:
    """What `explain_script` gives, from a fork instead of a new process: torch is loaded once."""
    request = {
        "script": str(path), "argv": [], "line": None, "tensor": None, "import_path": [],
        "home": str(path.parent), "report": str(folder / "report.json"), "megabytes": 8192,
        "folder": str(folder),
    }  # fmt: skip
    process = multiprocessing.get_context("fork").Process(target=_run, args=(request,))
    process.start()
    process.join(120)
    report = json.loads((folder / "report.json").read_text("utf-8"))
    return read_report(path, report, Run("", "", ""), "", None, None, LANDLOCK)


def _run(request: dict[str, object]) -> None:
    warnings.simplefilter("default")  # the suite makes errors of them; a script alone does not
    child.main(request)


def outcomes(found: ScriptExplanation) -> list[tuple[float, ...]]:
    """What each explanation says was drawn: an outcome, or the column of its first table."""
    return [
        call.explanation.subject.outcome.values
        for call in found.calls
        if call.explanation.subject.outcome is not None
    ]


def test_there_are_forty() -> None:
    assert len(EXPECTED) >= 40
    assert len(MISSED) <= 2
    assert all(wanted.keys() == {"rule", "outcome", "says"} for wanted in EXPECTED.values())


@pytest.mark.parametrize("name", sorted(EXPECTED.keys() - MISSED))
def test_the_rule_the_outcome_and_the_first_screen_are_as_written(
    name: str, tmp_path: Path
) -> None:
    wanted = EXPECTED[name]
    found = explained(SCRIPTS / f"{name}.py", tmp_path)
    rules = [rule.name for call in found.calls for rule in call.explanation.rules]
    for rule in wanted["rule"].split("; "):
        assert any(rule in given for given in rules), (rule, rules)
    numbers = tuple(map(float, wanted["outcome"].split()))
    assert any(drawn == pytest.approx(numbers) for drawn in outcomes(found)), outcomes(found)
    screen = found.text(100)
    assert len(screen.splitlines()) <= 50
    said = " ".join(screen.split())
    for words in wanted["says"].split(" | "):
        assert words in said, f"{words!r} is not in\n{screen}"
    checks = [check for call in found.calls for check in call.explanation.checks]
    assert all(check.passed for check in checks) is (name not in DISAGREES), checks


def test_a_fork_explains_as_a_process_of_its_own_does(tmp_path: Path) -> None:
    path = SCRIPTS / "policy_and_entropy.py"
    assert explain_script(path).text() == explained(path, tmp_path).text()
