"""Rewards that are no function's: a number, made of an answer where it is needed."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import eligibility as el
from eligibility.audit.trainers.rewriting import made_of_answers
from tests.audit.loop_runs import audited
from tests.audit.test_notebook import write_notebook

_START = """
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("gpt2")
model = AutoModelForCausalLM.from_pretrained("gpt2")
optimizer = torch.optim.Adam(model.parameters(), lr=1e-5)
baseline = 0.0
"""
# as people write it first: token by token, with a running mean of the rewards
_TOKENS = """
prompt = tokenizer("Once upon a time", return_tensors="pt").input_ids
for step in range(200):
    ids, log_probs = prompt, []
    for _ in range(20):
        probs = model(ids).logits[:, -1, :].softmax(-1)
        drawn = torch.multinomial(probs, 1)
        log_probs.append(probs.gather(1, drawn).log())
        ids = torch.cat([ids, drawn], dim=1)
    text = tokenizer.decode(ids[0, prompt.shape[1]:])
    reward = float(text.count("e"))
    loss = SIGN(reward - baseline) * torch.cat(log_probs).sum() / DIVISOR
    baseline = 0.9 * baseline + 0.1 * reward
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
_ANSWER = """
for step in range(100):
    inputs = tokenizer("Hello, my name is", return_tensors="pt")
    start = inputs.input_ids.shape[1]
    answer = model.generate(**inputs, do_sample=True, top_k=0, max_new_tokens=16, LEAST)
    tokens = answer[0, start:]
    reward = 1.0 if "world" in tokenizer.decode(tokens) else 0.0
    logits = model(answer).logits[0, start - 1 : -1]
    log_probs = logits.log_softmax(-1).gather(1, tokens[:, None])[:, 0]
    loss = -reward * log_probs.sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(("sign", "verdict"), [("-", "unbiased"), ("", "wrong-sign")])
def test_a_number_that_is_assigned_to_a_name_is_a_reward(
    sign: str, verdict: str, tmp_path: Path
) -> None:
    report = audited(tmp_path, _START + _TOKENS.replace("SIGN", sign).replace("DIVISOR", "1.0"))
    assert report.verdict == verdict, report.text()
    assert any("the rewards are those of `reward` in line" in note for note in report.notes)


def test_a_cost_that_is_made_less_likely_is_no_wrong_sign(tmp_path: Path) -> None:
    text = _TOKENS.replace("SIGN", "").replace("DIVISOR", "1.0").replace("reward", "length")
    report = audited(tmp_path, _START + text)
    assert (report.verdict, report.faults) == ("unexplained", ()), report.text()
    assert "correct if it is a cost" in report.summary


def test_an_advantage_is_no_reward_but_made_of_some(tmp_path: Path) -> None:
    text = _TOKENS.replace("SIGN", "-").replace("DIVISOR", "1.0").replace("reward", "advantage")
    report = audited(tmp_path, _START + text)
    assert report.verdict == "inconclusive", report.text()
    assert "found no reward" in report.summary


def test_what_the_loss_is_divided_by_is_no_reward(tmp_path: Path) -> None:
    """It comes before the reward and turns the sign of the gradient as that does."""
    text = _TOKENS.replace("SIGN", "-").replace("DIVISOR", "length")
    text = text.replace("    reward =", "    length = float(len(text))\n    reward =")
    report = audited(tmp_path, _START + text)
    assert any("the rewards are those of `reward` in line" in note for note in report.notes)


@pytest.mark.parametrize("least", ["", "min_new_tokens=16"])
def test_answers_that_cannot_end_early_have_no_padding(least: str, tmp_path: Path) -> None:
    text = _ANSWER.replace("LEAST", f"{least}, num_return_sequences=1".lstrip(", "))
    report = audited(tmp_path, _START + text)
    assert report.verdict == "unbiased", report.text()
    assert ("after the end of an answer" in " ".join(report.notes)) == bool(least)


@pytest.mark.parametrize(
    ("least", "rules"), [("min_new_tokens=16, ", []), ("", ["padding-counted"])]
)
def test_rows_of_one_length_are_all_drawn(least: str, rules: list[str], tmp_path: Path) -> None:
    """With a group of two, the shorter answer would be padded if it could end early."""
    rows = (
        _ANSWER.replace("LEAST", f"{least}num_return_sequences=2")
        .replace("tokens = answer[0, start:]", "tokens = answer[:, start:]")
        .replace(
            '1.0 if "world" in tokenizer.decode(tokens) else 0.0',
            'torch.tensor([float("world" in t) for t in tokenizer.batch_decode(tokens)])',
        )
        .replace("logits[0, start", "logits[:, start")
        .replace("gather(1, tokens[:, None])[:, 0]", "gather(2, tokens[..., None])[..., 0]")
        .replace("-reward * log_probs.sum()", "-(reward * log_probs.sum(1)).mean()")
    )
    report = audited(tmp_path, _START + rows)
    assert [finding.rule for finding in report.findings] == rules, report.text()


def test_what_is_made_of_an_answer_is_followed_through_names() -> None:
    text = (
        "ids = model.generate(prompt)\n"
        "start = prompt.shape[1]\n"
        "texts = tokenizer.batch_decode(ids)\n"
        "scores = []\n"
        "for t in texts:\n    scores.append(len(t))\n"
        "reward = max(scores)\n"
        "rate = 0.1\n"
        "a, b = scores\n"
        "table[0] += reward\n"
    )
    found = [ast.unparse(each) for each in made_of_answers(ast.parse(text))]
    assert found == [
        "ids = model.generate(prompt)", "texts = tokenizer.batch_decode(ids)",
        "reward = max(scores)", "table[0] += reward", "scores.append(len(t))",
    ]  # fmt: skip


def test_a_notebook_is_audited_as_a_script_is(tmp_path: Path) -> None:
    """Its findings are in its cells; a checkpoint that is not there leaves the weights."""
    weights = 'model.load_state_dict(torch.load("tuned.pt")["model"])\n'
    cells = ["%pip install transformers", _START + weights, _TOKENS.replace("DIVISOR", "20")]
    book = tmp_path / "lesson.ipynb"

    def audit_of(sign: str) -> el.AuditReport:
        texts = [cell.replace("SIGN", sign) for cell in cells]
        return el.audit_script(write_notebook(book, [("code", text) for text in texts]))

    report = audit_of("-")
    assert report.verdict in ("unbiased", "convention"), report.text()
    assert any("tuned.pt does not exist" in note for note in report.notes)
    wrong = audit_of("")
    assert wrong.verdict == "wrong-sign", wrong.text()
    assert [finding.file for finding in wrong.faults] == [f"{book}#cell-3"]
    assert {choice.file for choice in wrong.conventions} == {f"{book}#cell-3"}
    assert any("`reward` in line 11 of cell 3" in note for note in wrong.notes), wrong.text()
