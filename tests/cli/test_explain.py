"""``eligibility explain``: the forum's answer on the first screen; one line for each mistake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eligibility.cli.app import main

FORUM = ["explain", "categorical", "--probs", "0.69,0.1,0.2,0.01", "--action", "0", "--of", "prob"]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stopped:
        main(list(arguments))
    captured = capsys.readouterr()
    return stopped.value.code, captured.out, captured.err


def test_forum_question_is_answered(capsys) -> None:
    status, out, err = run(capsys, *FORUM)
    assert (status, err) == (0, "")
    assert "0.3100" in out
    assert "[-0.69 -0.69 -0.69 -0.69] through the sum" in out
    assert "[1 0 0 0]                 through the division" in out
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) <= 80


def test_json_is_alone_on_standard_output(capsys) -> None:
    status, out, err = run(capsys, *FORUM, "--json")
    record = json.loads(out)
    assert (status, err) == (0, "")
    assert record["rules"][0]["result"]["values"] == pytest.approx([0.31, -0.69, -0.69, -0.69])


def test_latex_is_a_document(capsys) -> None:
    status, out, _ = run(capsys, *FORUM, "--latex")
    assert status == 0
    assert out.startswith(r"\documentclass")
    assert out.endswith("\\end{document}\n")


def test_weights_times_100_give_the_gradient_over_100(capsys) -> None:
    _, out, _ = run(capsys, "explain", "categorical", "--probs", "69,10,20,1", "--action", "0",
                    "--of", "prob", "--json")  # fmt: skip
    values = json.loads(out)["rules"][0]["result"]["values"]
    assert values == pytest.approx([0.0031, -0.0069, -0.0069, -0.0069])


@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        ("categorical --logits 0,0 --action 1", [-0.5, 0.5]),
        ("categorical --logits=-inf,0,0 --action 1", [0, 0.5, -0.5]),
        ("categorical --probs .5,.3,.2 --action 0 --coordinates ambient", [2, 0, 0]),
        ("one-hot-categorical --probs 0.5,0.5 --action 1", [-1, 1]),
        ("multinomial --probs 0.5,0.3,0.2 --counts 2,1,0", [1, 1 / 3, -3]),
        ("multinomial --probs 0.5,0.3,0.2 --counts 2,1,0 --total-count 3", [1, 1 / 3, -3]),
        ("bernoulli --probs 0.25 --value 1", [4]),
        ("bernoulli --logits 0 --value 0", [-0.5]),
        ("binomial --probs 0.5 --value 3 --total-count 4", [4]),
    ],
)
def test_families(capsys, arguments: str, values: list[float]) -> None:
    status, out, err = run(capsys, "explain", *arguments.split(), "--json")
    assert (status, err) == (0, "")
    assert json.loads(out)["rules"][0]["result"]["values"] == pytest.approx(values)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "categorical --probs 0.5,0.5 --action 2",
            "`--action`: got a maximum of 2, expected indices in [0, 2); there are K = 2 "
            "categories, counted from 0",
        ),
        (
            "categorical --probs 0.5,0.5 --action=-1",
            "`--action`: got a minimum of -1, expected indices in [0, 2); there are K = 2 "
            "categories, counted from 0",
        ),
        (
            "categorical --probs 0.5,0.5 --action 0.5",
            "`--action`: got 0.5, expected a whole number; categories are counted from 0",
        ),
        (
            "categorical --probs=-0.5,1.5 --action 0",
            "`--probs`: got a minimum of -0.5, expected non-negative probabilities; pass "
            "unnormalised log-probabilities as logits instead",
        ),
        (
            "categorical --probs 0,0 --action 0",
            "`--probs`: got a row whose entries are all zero, expected at least one positive "
            "probability in each row; remove the row, or allow one category",
        ),
        (
            "categorical --logits nan,0 --action 0",
            "`--logits`: got NaN, expected numbers; find where the NaN arises, for instance "
            "0 · inf or 0 / 0",
        ),
        (
            "categorical --action 0",
            "`--probs` or `--logits`: got none, expected one of them; for example "
            "`--probs 0.69,0.1,0.2,0.01`",
        ),
        (
            "categorical --probs 1,1 --logits 0,0 --action 0",
            "`--probs` or `--logits`: got both, expected one of them; for example "
            "`--probs 0.69,0.1,0.2,0.01`",
        ),
        (
            "categorical --probs a,b --action 0",
            "`--probs`: got 'a,b', expected numbers separated by commas; for example "
            "0.69,0.1,0.2,0.01",
        ),
        (
            "categorical --probs 0.5,0.5",
            "the outcome of categorical: got nothing, expected `--action`; say what was drawn, "
            "for example `--action 1`",
        ),
        (
            "multinomial --probs 0.5,0.5 --action 1",
            "the outcome of multinomial: got `--action`, expected `--counts`; say what was drawn, "
            "for example `--counts 2,1,0`",
        ),
        (
            "multinomial --probs 0.5,0.5 --counts 2,1 --total-count 4",
            "`--counts`: got a sum of 3, expected counts that sum to total_count = 4; correct the "
            "counts, or the total count",
        ),
        (
            "multinomial --probs 0.5,0.5 --counts 2,1,1",
            "`--counts`: got 3 numbers, expected 2, one for each category; give 0 for what was "
            "not drawn",
        ),
        (
            "bernoulli --probs 1.5 --value 1",
            "`--probs`: got values from 1.5 to 1.5, expected probabilities in [0, 1]; pass "
            "log-odds as logits instead",
        ),
        (
            "bernoulli --probs 0.5 --value 2",
            "`--value`: got a maximum of 2, expected numbers of at most 1; no outcome can exceed "
            "the number of trials",
        ),
        (
            "binomial --probs 0.5 --value 2",
            "`--total-count`: got nothing, expected the number of trials; for example "
            "`--total-count 5`",
        ),
        (
            "categorical --probs 0.5,0.5 --action 0 --coordinates polar",
            "`coordinates` of the probs of Categorical: got 'polar', expected 'weights' or "
            "'ambient' or 'free' or 'tangent'; see the documentation of "
            "eligibility.rules.multinomial",
        ),
        (
            "categorical --probs 0.5,0.5 --action 0 --of entropy",
            "`of`: got 'entropy', expected 'log_prob' or 'prob'; choose one of them",
        ),
        (
            "categorical --probs 0.5,0.5 --action 0 --json --latex",
            "`--json`, `--latex`: got both, expected one of them; choose one format",
        ),
        (
            "zeta --probs 0.5,0.5 --action 0",
            "the distribution: got 'zeta', expected one of categorical, onehotcategorical, "
            "multinomial, bernoulli, binomial; see `eligibility explain --help`",
        ),
    ],
)
def test_bad_input_is_one_line_and_status_2(capsys, arguments: str, message: str) -> None:
    status, out, err = run(capsys, "explain", *arguments.split())
    assert (status, out) == (2, "")
    assert err == f"error: {message}\n"


SCRIPTS = Path(__file__).parents[1] / "explanation" / "scripts"


def test_a_script_is_explained_and_its_own_output_kept_apart(capsys) -> None:
    status, out, err = run(capsys, "explain", str(SCRIPTS / "forum_with_backward.py"), "--json")
    assert status == 0
    (call,) = json.loads(out)["calls"]
    assert call["line"] == 24
    assert "probs-grad: tensor([[ 0.3100, -0.6900, -0.6900, -0.6900]])" in err


def test_a_missing_script_is_one_line_and_status_2(capsys) -> None:
    assert run(capsys, "explain", "nope.py") == (
        2,
        "",
        "error: `nope.py`: got no such file, expected a Python script; check the name and the "
        "folder\n",
    )
