"""``eligibility explain``: the forum's answer on the first screen; one line for each mistake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eligibility.explanation.questions import QUESTIONS
from tests.cli.conftest import Command

FORUM = ["explain", "categorical", "--probs", "0.69,0.1,0.2,0.01", "--action", "0", "--of", "prob"]


def test_forum_question_is_answered(eligibility: Command) -> None:
    status, out, err = eligibility(*FORUM)
    assert (status, err) == (0, "")
    assert "0.3100" in out
    assert "[-0.69 -0.69 -0.69 -0.69] through the sum" in out
    assert "[1 0 0 0]                 through the division" in out
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) <= 80


def test_json_is_alone_on_standard_output(eligibility: Command) -> None:
    status, out, err = eligibility(*FORUM, "--json")
    record = json.loads(out)
    assert (status, err) == (0, "")
    assert record["rules"][0]["result"]["values"] == pytest.approx([0.31, -0.69, -0.69, -0.69])


def test_latex_is_a_document(eligibility: Command) -> None:
    status, out, _ = eligibility(*FORUM, "--latex")
    assert status == 0
    assert out.startswith(r"\documentclass")
    assert out.endswith("\\end{document}\n")


def test_weights_times_100_give_the_gradient_over_100(eligibility: Command) -> None:
    _, out, _ = eligibility("explain", "categorical", "--probs", "69,10,20,1", "--action", "0",
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
def test_families(eligibility: Command, arguments: str, values: list[float]) -> None:
    status, out, err = eligibility("explain", *arguments.split(), "--json")
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
            "`--action`: got 0.5, expected a whole number; categories are numbered from 0",
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
            "bernoulli --probs 0.5 --value 0,1",
            "`--value`: got 2 numbers, expected one number; explain one outcome at a time",
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
            "`--counts`: got 3 numbers, expected 2, one for each category; pass 0 for a category "
            "that was not drawn",
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
    ],
)
def test_bad_input_is_one_line_and_status_2(
    eligibility: Command, arguments: str, message: str
) -> None:
    status, out, err = eligibility("explain", *arguments.split())
    assert (status, out) == (2, "")
    assert err == f"error: {message}\n"


SCRIPTS = Path(__file__).parents[1] / "explanation" / "scripts"


def test_a_script_is_explained_and_its_own_output_kept_apart(eligibility: Command) -> None:
    status, out, err = eligibility("explain", str(SCRIPTS / "forum_with_backward.py"), "--json")
    assert status == 0
    (call,) = json.loads(out)["calls"]
    assert call["line"] == 24
    assert "probs-grad: tensor([[ 0.3100, -0.6900, -0.6900, -0.6900]])" in err


def test_a_missing_script_is_one_line_and_status_2(eligibility: Command) -> None:
    assert eligibility("explain", "nope.py") == (
        2,
        "",
        "error: `nope.py`: got no such file, expected a Python script; check the name and the "
        "folder\n",
    )


def test_questions_are_listed_and_answered(eligibility: Command) -> None:
    status, out, err = eligibility("explain", "--question")
    assert (status, err) == (0, "")
    assert len(out.splitlines()) == len(QUESTIONS)
    status, out, err = eligibility("explain", "--question", "6")
    assert (status, err) == (0, "")
    assert out.startswith("6. Why is the gradient exactly 0, and my agent repeats one action?\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "--question 0",
            f"`--question`: got 0, expected a number from 1 to {len(QUESTIONS)}; `eligibility "
            "explain --question` lists them",
        ),
        (
            "--question why",
            "`--question`: got 'why', expected a number; `--question` alone lists them",
        ),
        (
            "",
            "the subject: got nothing, expected a distribution or a script; see `eligibility "
            "explain --help`",
        ),
        (
            "normal --param loc=0 --value 1",
            "`--param` of Normal: got no scale, expected loc, scale; give each as --param "
            "name=numbers",
        ),
        (
            "normal --param loc=0 --param scale=1 --param df=1 --value 1",
            "`--param` of Normal: got df, expected loc, scale; give each as --param name=numbers",
        ),
        (
            "normal --param mean=0 --value 1",
            "`--param` of Normal: got mean and no loc, scale, expected loc, scale; give each as "
            "--param name=numbers",
        ),
        (
            "categorical --probs 1,1 --action 0 --param loc=1",
            "`--param` of categorical: got loc, expected `--probs` or `--logits`; pass one of them "
            "instead",
        ),
        (
            "normal --param loc=0 --param scale=-1 --value 1",
            "`--param scale`: got numbers outside GreaterThan(lower_bound=0.0), expected numbers "
            "inside it; correct them",
        ),
        (
            "normal --param loc --value 1",
            "`--param`: got 'loc', expected name=numbers; for example --param loc=0 --param "
            "scale=1",
        ),
        (
            "normal --param loc=0 --param scale=1 --value 1 --wrt df",
            "`wrt` of Normal: got 'df', expected 'loc' or 'scale'; register a rule for it with "
            "eligibility.register_eligibility",
        ),
        (
            "exponential --param rate=1 --value=-1",
            "`value`: got outcomes outside the support of Exponential, expected "
            "GreaterThanEq(lower_bound=0.0); pass what the distribution can sample",
        ),
        (
            "multivariatenormal --param loc=0,0 --param covariance_matrix=1,0;0 --value 1,2",
            "`--param covariance_matrix`: got rows of different lengths, expected a matrix; for "
            "example 1,0;0,1",
        ),
    ],
)
def test_bad_questions_and_parameters_are_one_line(
    eligibility: Command, arguments: str, message: str
) -> None:
    assert eligibility("explain", *arguments.split()) == (2, "", f"error: {message}\n")


def test_any_supported_distribution_is_explained_by_its_parameters(eligibility: Command) -> None:
    arguments = "multivariatenormal --param loc=0,0 --param covariance_matrix=2,0;0,1 --value 1,2"
    status, out, err = eligibility("explain", *arguments.split(), "--wrt", "loc", "--json")
    assert (status, err) == (0, "")
    assert json.loads(out)["rules"][0]["result"]["values"] == pytest.approx([0.5, 2.0])


def test_an_unknown_distribution_names_those_that_are_known(eligibility: Command) -> None:
    status, out, err = eligibility("explain", "zeta", "--value", "1")
    assert (status, out) == (2, "")
    assert err.startswith("error: the distribution: got 'zeta', expected one of bernoulli, beta, ")
    assert err.endswith("; did you mean beta? A script's name ends in .py\n")
    _, _, err = eligibility("explain", "my_folder", "--value", "1")
    assert err.endswith("; choose one of these. A script's name ends in .py\n")


def test_one_category_is_explained(eligibility: Command) -> None:
    for family, outcome in (("categorical", "--action"), ("onehotcategorical", "--action")):
        status, out, err = eligibility("explain", family, "--probs", "1", outcome, "0")
        assert (status, err) == (0, "")
        assert "free" in out
    status, out, _ = eligibility("explain", "multinomial", "--probs", "1", "--counts", "3")
    assert status == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "categorical --probs 0.69 0.1 0.2 --action 0",
            "the command: got the extra argument `0.1`, expected one distribution, or one "
            "question, and "
            "options; separate numbers by commas, without spaces",
        ),
        (
            "categorical --probs 1,1 --action 0 --line 4",
            "`--line`: got 4, expected no such option for a distribution; omit it",
        ),
        (
            "program.py --probs 1,1",
            "`--probs`: got 1,1, expected no such option for a script; omit it",
        ),
        (
            "binomial --probs 0.5 --value 1 --total-count 1e99",
            "`--total-count`: got 1e+99, expected at most 9,007,199,254,740,992; choose a smaller "
            "one",
        ),
        (
            "multinomial --probs 1,1 --counts 1,1e99",
            "`--counts`: got 1e+99, expected at most 9,007,199,254,740,992; pass counts",
        ),
        (
            "bernoulli --probs 0.5 --value 1 --total-count 2",
            "`--total-count`: got 2, expected none: bernoulli has no number of trials; omit it, "
            "or explain binomial or multinomial",
        ),
        (
            "normal --param loc=0 --param loc=1 --param scale=1 --value 0",
            "`--param`: got loc twice, expected each parameter once; pass only one of them",
        ),
        (
            "poisson --param rate=inf --value 0",
            "`--param rate`: got inf, expected finite numbers; correct it",
        ),
        (
            "lkjcholesky --param dim=1e9 --value 1",
            "`--param dim`: got 1e+09, expected at most 100; choose a smaller one",
        ),
    ],
)
def test_what_nothing_would_read_or_hold_is_refused(
    arguments: str, message: str, eligibility: Command
) -> None:
    assert eligibility("explain", *arguments.split()) == (2, "", f"error: {message}\n")


def test_an_option_of_the_script_belongs_after_two_hyphens(eligibility: Command) -> None:
    status, _, err = eligibility("explain", "train.py", "--seed", "3")
    assert status == 2
    assert err == (
        "error: No such option: --seed. If it is an option of train.py, write it after `--`: "
        "train.py -- …\n"
    )


FAILING = """import torch
z = torch.zeros(3, requires_grad=True)
loss = torch.distributions.Categorical(logits=z).log_prob(torch.tensor(1))
loss.backward()
loss.backward()
"""


def test_a_failing_script_is_explained_and_the_status_is_1(
    eligibility: Command, tmp_path: Path
) -> None:
    script = tmp_path / "twice.py"
    script.write_text(FAILING, encoding="utf-8")
    status, out, _ = eligibility("explain", str(script))
    assert status == 1
    assert out.index("one_hot(a) − softmax(z)") < out.index("WHAT HAPPENED")
    status, out, _ = eligibility("explain", str(script), "--section", "rule")
    assert "RULE" in out
    assert "CHECKS" not in out
    status, _, err = eligibility("explain", str(script), "--section", "rules")
    assert (status, err) == (
        2,
        "error: `--section`: got 'rules', expected table or why or steps or rule or checks or "
        "expected or notes; choose one\n",
    )
