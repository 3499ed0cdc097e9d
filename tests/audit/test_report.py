"""Renderers draw what the record says, and the record says when it is ok."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from eligibility.audit.reporting.report import AuditReport, Convention, Credit, Finding, WeightRow
from eligibility.errors import InvalidTypeError

FINDING = Finding(
    "broadcast", "[B] × [B, 1]", "every <b> by every return", "seen", "a/b.py", 7, "reshape(-1)"
)
REPORT = AuditReport(
    "a/b.py",
    "biased",
    "every action alike",
    findings=(FINDING,),
    conventions=(Convention("gamma-t-dropped", "no γ^t", 0.03),),
    weights=(WeightRow(0, 0, 1.5, -2.0, 1.0), WeightRow(0, 1, 0.5, 4.0, 0.5)),
    residual=0.4,
    paths=25,
    exhaustive=True,
    probability=1.0,
)


def test_json_has_the_fields_that_programs_rely_on() -> None:
    data = json.loads(REPORT.to_json())
    assert data["verdict"] == "biased"
    assert data["conventions"] == ["gamma-t-dropped"]
    assert (data["residual"], data["paths"]) == (0.4, 25)
    assert data["findings"][0] == vars(FINDING)


def test_an_unmeasured_residual_is_null_in_json() -> None:
    assert json.loads(AuditReport("p", "inconclusive", "").to_json())["residual"] is None


def test_sarif_puts_the_finding_on_its_line() -> None:
    (result,) = json.loads(REPORT.sarif())["runs"][0]["results"]
    location = result["locations"][0]["physicalLocation"]
    assert (result["ruleId"], result["level"]) == ("broadcast", "error")
    assert location["artifactLocation"]["uri"] == "a/b.py"
    assert location["region"]["startLine"] == 7


def test_sarif_has_what_its_standard_requires() -> None:
    # SARIF 2.1.0 (OASIS 2020): §3.13 log, §3.14 run, §3.19 toolComponent, §3.27 result
    log = json.loads(REPORT.sarif())
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    driver = run["tool"]["driver"]
    assert driver["name"]
    rules = [rule["id"] for rule in driver["rules"]]
    assert len(set(rules)) == len(rules)
    for result in run["results"]:
        assert result["message"]["text"]
        assert result["ruleId"] in rules
        assert result["level"] in {"none", "note", "warning", "error"}
        assert result["locations"][0]["physicalLocation"]["region"]["startLine"] >= 1


def test_sarif_addresses_files_as_references(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def address(file: str) -> str:
        report = replace(REPORT, findings=(replace(FINDING, file=file),))
        (result,) = json.loads(report.sarif())["runs"][0]["results"]
        return str(result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"])

    assert address(str(tmp_path / "my agent.py")) == "my%20agent.py"
    assert address("/elsewhere/a.py") == "file:///elsewhere/a.py"
    assert address("book.ipynb#cell-3") == "book.ipynb#cell-3"


def test_junit_counts_the_fault_as_a_failure() -> None:
    suite = ElementTree.fromstring(REPORT.junit())
    assert (suite.get("tests"), suite.get("failures")) == ("1", "1")
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert failure.get("type") == "broadcast"


def test_junit_has_one_failure_for_several_faults_and_an_error_for_no_answer() -> None:
    second = replace(FINDING, rule="reversed-returns", title="backwards", file="c.py", line=9)
    report = AuditReport("p", "biased", "", findings=(second, FINDING))
    suite = ElementTree.fromstring(report.junit())
    assert suite.get("failures") == "1"
    (case,) = suite.findall("testcase")
    (failure,) = case.findall("failure")
    assert failure.get("type") == "reversed-returns broadcast"
    assert (case.get("file"), case.get("line")) == ("c.py", "9")
    unknown = ElementTree.fromstring(AuditReport("p", "inconclusive", "no loop").junit())
    assert (unknown.get("failures"), unknown.get("errors")) == ("0", "1")
    error = unknown.find("testcase/error")
    assert error is not None
    assert error.get("message") == "no loop"


def test_html_escapes_and_draws_a_bar_for_each_weight() -> None:
    page = REPORT.html()
    assert "every &lt;b&gt; by every return" in page
    assert page.count("<rect") == 4
    assert '<meta name="viewport"' in page  # else a telephone shows it at the width of a desk
    assert 'x="30.0" y="3" width="30.0"' in page  # −2 of a largest 4: half the width, to the left


def test_html_shows_code_as_code_and_no_empty_column() -> None:
    conventions = (Convention("whitened", "divided", 0.3), Convention("centred", "subtracted", 0.0))
    page = AuditReport(
        "p", "convention", "", conventions=conventions, notes=("`generate` <draws>",)
    ).html()
    assert "<code>generate</code> &lt;draws&gt;" in page
    assert "<h2>Conventions</h2>" in page
    assert "what it does</th></tr>" in page  # neither how to do without, nor where


def test_one_word_is_no_set_of_conventions() -> None:
    with pytest.raises(InvalidTypeError) as raised:
        REPORT.ok(conventions="whitened")
    assert str(raised.value) == (
        "`conventions`: got a str, expected a set of names; write {'whitened'}"
    )


def test_one_path_is_one() -> None:
    assert AuditReport("p", "inconclusive", "", paths=1).measured().startswith("1 path run")


def test_a_fault_whose_first_gradient_is_right_says_so() -> None:
    text = "the fault is not in the first step's policy gradient"
    assert text not in replace(REPORT, tolerance=1e-9).measured()
    assert text in replace(REPORT, tolerance=1e-9, residual=1e-10).measured()
    for other in ({"verdict": "convention"}, {"verdict": "wrong-sign"}):  # right but for its sign
        assert text not in replace(REPORT, tolerance=1e-9, residual=1e-10, **other).measured()


def test_text_starts_with_the_verdict() -> None:
    assert REPORT.text().startswith("BIASED  a/b.py: every action alike")


@pytest.mark.parametrize(
    ("verdict", "findings", "status", "ok"),
    [
        ("unbiased", (), 0, True),
        ("unbiased", (FINDING,), 1, False),
        ("biased", (), 1, False),
        ("inconclusive", (), 2, False),
        ("inconclusive", (FINDING,), 1, False),
        ("unexplained", (replace(FINDING, severity="warning"),), 3, False),
        ("unbiased", (replace(FINDING, severity="warning"),), 0, True),
    ],
)
def test_exit_status_and_ok(
    verdict: str, findings: tuple[Finding, ...], status: int, ok: bool
) -> None:
    report = AuditReport("p", verdict, "", findings=findings)
    assert (report.exit_status, report.ok()) == (status, ok)
    suite = ElementTree.fromstring(report.junit())
    counted = (suite.get("failures"), suite.get("errors"))
    assert counted == (str(int(status == 1)), str(int(status > 1)))


LANGUAGE = AuditReport(
    "loss",
    "biased",
    "forward",
    credit=Credit(
        ("token <1>", "token 2"), ("r1", "r2"), ((1.0, -1.0), (0.0, 1.0)), ((1.0, 0.0),) * 2
    ),
    components={"reward": 0.25, "kl-forward": -0.125},
    wanted={"reward": 0.25, "kl-reverse": -0.125},
    invariances={"padding": 1e-17, "micro-batches": 0.31},
    tolerance=1e-6,
)


def test_credit_components_and_invariances_are_shown_in_a_terminal() -> None:
    lines = LANGUAGE.text().splitlines()
    shown = {line.split("  ")[0]: line.split() for line in lines if line}
    assert shown["kl-forward"] == ["kl-forward", "-0.1250", "0.0000"]
    assert shown["kl-reverse"] == ["kl-reverse", "0.0000", "-0.1250"]
    assert shown["token <1>"][2:] == ["1.000", "-1.000", "(0.000)"]
    assert "the gradient changes with micro-batches 31.0%; it does not change with padding" in lines


def test_the_credit_of_ten_rewards_fits_in_a_terminal() -> None:
    """As two actors' in two episodes: every number is whole, in two lines."""
    names = tuple(f"{actor}{episode} t{t}" for t in range(5) for actor in "a" for episode in (1, 2))
    given, reinforce = ((-0.337,) * 10,) * 10, ((0.98,) * 10,) * 10
    text = replace(LANGUAGE, credit=Credit(names, names, given, reinforce)).text()
    assert text.count("-0.34") == text.count("(0.98)") == 100


def test_credit_components_and_invariances_are_drawn_on_the_page() -> None:
    page = LANGUAGE.html()
    assert page.count("<rect") == 8 + 2 * 3
    assert "token &lt;1&gt;, r2: -1" in page
    assert "<td>31.0%</td>" in page
    data = json.loads(LANGUAGE.to_json())
    assert data["components"] == {"reward": 0.25, "kl-forward": -0.125}
    assert data["wanted"] == {"reward": 0.25, "kl-reverse": -0.125}


def test_a_place_is_relative_and_comes_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "agent.py"
    program.write_text("import torch\nloss = -log_prob * total\n", encoding="utf-8")
    found = replace(FINDING, file=str(program), line=2)
    assert found.place == f"{program.as_posix()}:2"
    monkeypatch.chdir(tmp_path)
    assert found.place == "agent.py:2"
    report = replace(REPORT, findings=(found,))
    assert "WHERE  agent.py:2\n       loss = -log_prob * total\n" in report.text()
    assert "loss = -log_prob * total" in report.html()
    cells = [{"cell_type": "code", "source": "a = 1\nb = 2"}]
    (tmp_path / "n.ipynb").write_text(json.dumps({"cells": cells}), encoding="utf-8")
    assert replace(FINDING, file="n.ipynb#cell-1", line=2).code == "b = 2"
    assert replace(FINDING, file="gone.py").code == ""


@pytest.mark.parametrize(
    ("bias", "shown"),
    [(0.0, "0.0%"), (2.3e-5, "0.002%"), (6e-4, "0.1%"), (0.576, "57.6%"), (None, "-")],
)
def test_a_small_bias_is_not_shown_as_0(bias: float | None, shown: str) -> None:
    assert Convention("offset-logarithm", "ln(π + ε)", bias).size == shown
