"""Answers that a program decodes and encodes again: the token that ends them is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

pytest.importorskip("transformers")
pytest.importorskip("datasets")

from eligibility.audit.trainers.gradients import Rows
from eligibility.audit.trainers.refused import Refused
from eligibility.audit.trainers.tiny import END, POLICY_SEED, PROMPT_ONLY, WORD, make_model
from tests.audit.loop_runs import LOADED, audited

LOOP = (
    LOADED
    + """
def score(text):
    return float(len(text))

question = "Name a fruit."
start = tok(question, return_tensors="pt").input_ids.shape[1]
for _ in range(100):
    answers = []
    for _ in range(2):
        with torch.no_grad():
            ids = model.generate(**tok(question, return_tensors="pt"), do_sample=True, top_k=0,
                                 max_new_tokens=9, pad_token_id=tok.pad_token_id)
        answers.append(tok.decode(ids[0, start:], skip_special_tokens=True))
    rewards = torch.tensor([score(answer) for answer in answers])
    rows = [tok(question + answer + ENDING, return_tensors="pt").input_ids[0] for answer in answers]
    width = max(len(row) for row in rows)
    ids = torch.stack([torch.nn.functional.pad(row, (0, width - len(row))) for row in rows])
    mask = torch.arange(width) < torch.tensor([len(row) for row in rows])[:, None]
    logits = model(ids, attention_mask=mask.long()).logits[:, :-1]
    log_probs = logits.log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1)
    log_probs = (log_probs * mask[:, 1:])[:, start - 1:].sum(1)
    loss = -(log_probs * (rewards - rewards.flip(0))).mean()
    adam.zero_grad()
    loss.backward()
    adam.step()
"""
)


def test_the_end_that_is_lost_is_not_scored(tmp_path: Path) -> None:
    report = audited(tmp_path, LOOP.replace("ENDING", '""'))
    assert [each.rule for each in report.findings] == ["last-step-dropped"], report.summary


def test_an_answer_without_its_end_is_not_a_row_that_was_met() -> None:
    """Else the inputs of a program that cuts them would all be taken for answers that ended."""
    model, prompt = make_model(POLICY_SEED), (WORD, PROMPT_ONLY)
    rows = Rows(model)
    rows.expect_rows([(prompt, (WORD, END)), (prompt, (WORD, WORD))])
    ids = torch.tensor([[*prompt, WORD]] * 2)
    model(input_ids=ids).logits.sum().backward()
    with pytest.raises(Refused, match="scores tokens other than those it sampled"):
        rows.collected()


def test_an_answer_that_is_put_into_the_form_of_a_chat_gets_its_end(tmp_path: Path) -> None:
    row = "tok(question + answer + ENDING"
    said = 'dict(role="user", content=question), dict(role="assistant", content=answer)'
    chat = f"tok(tok.apply_chat_template([{said}], tokenize=False)"
    report = audited(tmp_path, LOOP.replace(row, chat))
    assert (report.verdict, report.findings) == ("unbiased", ()), report.text()
