"""Whole audits of scripts, in the child process and through the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import eligibility as el
from eligibility.audit.judgement.source import read_source
from eligibility.errors import InvalidValueError
from tests.audit.writing import LOSS, line_of, write_program


def command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "eligibility", "audit", *map(str, arguments)],
        capture_output=True,
        text=True,
    )


def test_a_correct_program_is_unbiased_to_rounding(tmp_path: Path) -> None:
    report = el.audit_script(write_program(tmp_path))
    assert report.verdict == "unbiased"
    assert report.residual < 1e-9
    assert report.probability == pytest.approx(1.0, abs=1e-12)
    assert report.exhaustive
    assert report.exit_status == 0
    assert report.ok()
    for row in report.weights:
        assert row.given == pytest.approx(row.reinforce, abs=1e-8)


def test_only_the_child_process_loads_torch(tmp_path: Path) -> None:
    """Loading it takes as long as a third of an audit."""
    path = write_program(tmp_path)
    told = "import sys, eligibility.audit.scripts as s; s.audit_script(sys.argv[1]); "
    told += "assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", told, path], check=True)


def test_the_command_names_the_fault_its_line_and_its_fix(tmp_path: Path) -> None:
    path = write_program(tmp_path, LOSS, "loss = -(log_probs.mean() * returns).sum()")
    result = command(path, "--json", "--html", tmp_path / "r.html", "--sarif", tmp_path / "r.sarif")
    assert result.returncode == 1, result.stderr
    report = json.loads(result.stdout)
    assert report["verdict"] == "biased"
    assert report["residual"] > 0.04
    (finding,) = report["findings"]
    assert finding["rule"] == "mean-log-prob-times-sum-of-returns"
    assert (finding["file"], finding["line"]) == (str(path), line_of(path, "loss ="))
    assert finding["fix"] == "loss = -(log_probs * returns).sum()"
    assert "mean(log_prob)" in (tmp_path / "r.html").read_text(encoding="utf-8")
    region = json.loads((tmp_path / "r.sarif").read_text(encoding="utf-8"))["runs"][0]["results"][0]
    line = region["locations"][0]["physicalLocation"]["region"]["startLine"]
    assert line == line_of(path, "loss =")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["missing.py"],
            "error: `missing.py`: got No such file or directory, expected a readable Python file; "
            "check the path",
        ),
        (
            ["broken.py"],
            "error: `broken.py`: got text that is not Python (line 1), expected a Python program; "
            "correct it, or pass the script that trains the policy",
        ),
        (
            ["broken.ipynb"],
            "error: `broken.ipynb`: got text that is not Python (cell 2, line 2), expected a "
            "Python program; correct it, or pass the script that trains the policy",
        ),
        (
            ["fine.py", "--time-limit", "-1"],
            "error: `time_limit`: got -1, expected a positive number; omit it to use the default",
        ),
        (
            ["fine.py", "--discount", "2"],
            "error: `discount`: got 2, expected a number in [0, 1]; 1 means no discount",
        ),
    ],
)
def test_bad_usage_is_one_line_and_status_2(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    (tmp_path / "broken.py").write_text("def :", encoding="utf-8")
    cells = [{"cell_type": "code", "source": text} for text in ("a = 1\nb = 2", "c = 3\nd = (")]
    (tmp_path / "broken.ipynb").write_text(json.dumps({"cells": cells}), encoding="utf-8")
    (tmp_path / "fine.py").write_text("", encoding="utf-8")
    result = subprocess.run(
        [sys.executable, "-m", "eligibility", "audit", *arguments],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.strip() == message


def test_limits_are_checked_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match="`max_paths`: got 0, expected a positive number"):
        el.audit_script(write_program(tmp_path), max_paths=0)


def test_the_old_interface_is_recognised_in_a_module_beside_the_script(tmp_path: Path) -> None:
    (tmp_path / "play.py").write_text("state, reward, done, _ = env.step(0)", encoding="utf-8")
    script = tmp_path / "train.py"
    script.write_text("import numpy\nimport play\n", encoding="utf-8")
    assert read_source(script).four_tuple
    script.write_text("import numpy\n", encoding="utf-8")
    assert not read_source(script).four_tuple
    (tmp_path / "agents").mkdir()
    inner = tmp_path / "agents" / "__init__.py"
    inner.write_text("from .episodes import run\n", encoding="utf-8")
    (tmp_path / "agents" / "episodes.py").write_text("import play\n", encoding="utf-8")
    script.write_text("from agents import run\n", encoding="utf-8")
    assert read_source(script).four_tuple, "a package, and what its modules import"


def test_the_discount_of_a_module_is_among_the_constants(tmp_path: Path) -> None:
    (tmp_path / "settings.py").write_text("GAMMA = 0.97\n", encoding="utf-8")
    script = tmp_path / "train.py"
    script.write_text("from settings import GAMMA\nclip = 0.8\n", encoding="utf-8")
    assert read_source(script).constants(()).discounts == (0.8, 0.97, 1.0)
    # where no number is likely to be γ it may come from a file that the program reads
    (tmp_path / "settings.py").write_text("GAMMA = json.load(file)['gamma']\n", encoding="utf-8")
    assert {0.8, 0.95, 0.99, 1.0} <= set(read_source(script).constants(()).discounts)
