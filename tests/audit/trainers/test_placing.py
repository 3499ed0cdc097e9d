"""Which answer a row that is scored belongs to: token by token, and where an end was put in."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("transformers")
pytest.importorskip("datasets")

from tests.audit.loop_runs import LOADED, audited

DRAWN = """
def joy(text):
    return float(len(text))

for step in range(100):
    given = tok("Once upon a time", return_tensors="pt").input_ids.repeat(2, 1)
    start = given.shape[1]
    ids = model.generate(given, do_sample=True, max_new_tokens=20, top_k=0)
    texts = tok.batch_decode(ids[:, start:], skip_special_tokens=True)
    rewards = torch.tensor([joy(text) for text in texts])
    ended = (ids[:, start:] == tok.eos_token_id).cumsum(1)
    mask = (ended - (ids[:, start:] == tok.eos_token_id).long() == 0).float()
"""
STEP = """
    loss = -(logps * mask * rewards[:, None]).sum(1).mean()
    adam.zero_grad()
    loss.backward()
    adam.step()
"""

# Each token is scored by a pass over what stands before it, as people write it who draw that way.
ONE_ROW = """
    logps = torch.zeros_like(mask)
    for i in range(len(ids)):
        for t in {steps}:
            logits = model(ids[i : i + 1, : start + t]).logits[:, -1]
            logps[i, t] = torch.distributions.Categorical(logits=logits).log_prob(ids[i, start + t])
"""
EVERY_ROW = """
    logps = []
    for t in {steps}:
        logits = model(ids[:, : start + t]).logits[:, -1]
        logps.append(torch.distributions.Categorical(logits=logits).log_prob(ids[:, start + t]))
    logps = torch.stack(logps, 1)
"""
FORWARD = "range(mask.shape[1])"
OF_EACH = "range(int(mask[i].sum()))"


@pytest.mark.parametrize(
    "scored",
    [
        ONE_ROW.format(steps=OF_EACH),
        ONE_ROW.format(steps=f"reversed({OF_EACH})"),
        EVERY_ROW.format(steps=FORWARD),
    ],
    ids=["row by row", "from the last token on", "all rows at once"],
)
def test_a_program_may_score_each_token_by_a_pass_of_its_own(tmp_path: Path, scored: str) -> None:
    report = audited(tmp_path, LOADED + DRAWN + scored + STEP)
    assert report.verdict == "unbiased", report.summary


WHOLE = """
    logits = model(ids).logits[:, start - 1 : -1]
    logps = logits.log_softmax(-1).gather(-1, ids[:, start:, None]).squeeze(-1)
"""
# As OpenRLHF once did: every answer ends with the end token, drawn or not.
ENDED = """
    unfinished = ended[:, -1] == 0
    ids[unfinished, -1] = tok.eos_token_id
"""


def test_an_end_that_was_not_drawn_is_another_token(tmp_path: Path) -> None:
    text = LOADED + DRAWN + ENDED + WHOLE + STEP
    report = audited(tmp_path, text)
    assert report.verdict == "biased"
    (finding,) = report.findings
    assert finding.rule == "scored-other-action"
    assert finding.line == 1 + text[: text.index("ids[unfinished")].count("\n")


def test_an_end_that_is_not_scored_is_no_fault(tmp_path: Path) -> None:
    masked = ENDED + "    mask[unfinished, -1] = 0.0\n"
    report = audited(tmp_path, LOADED + DRAWN + masked + WHOLE + STEP)
    assert report.verdict != "inconclusive", report.summary
    assert "scored-other-action" not in {finding.rule for finding in report.findings}


# Answers are drawn after an instruction; what is scored is put together from texts again.
AGAIN = """
    asked = "Say a number."
    given = tok(asked + "{drawn}", return_tensors="pt").input_ids.repeat(2, 1)
    ids = model.generate(given, do_sample=True, max_new_tokens=20, top_k=0)
    texts = tok.batch_decode(ids[:, given.shape[1] :])
    rewards = torch.tensor([joy(text) for text in texts])
    logps = []
    for text in texts:
        row = tok(asked + "{scored}" + text, return_tensors="pt").input_ids
        start = tok(asked + "{scored}", return_tensors="pt").input_ids.shape[1]
        logits = model(row).logits[:, start - 1 : -1]
        each = logits.log_softmax(-1).gather(-1, row[:, start:, None]).squeeze(-1)
        logps.append(each[0, : (row[0, start:] == tok.eos_token_id).long().argmax() + 1].sum())
    loss = -(torch.stack(logps) * rewards).mean()
    adam.zero_grad()
    loss.backward()
    adam.step()
"""
JOY = DRAWN[: DRAWN.index("    given")]


def test_answers_may_be_scored_after_another_text(tmp_path: Path) -> None:
    other = AGAIN.format(drawn=" Answer:", scored="")
    report = audited(tmp_path, LOADED + JOY + other)
    assert report.verdict == "biased"
    (finding,) = report.findings
    assert finding.rule == "behaviour-not-scored"
    assert "Answer:" in finding.evidence


@pytest.mark.parametrize("templated", [False, True])
def test_texts_that_may_be_read_alike_are_no_others(tmp_path: Path, templated: bool) -> None:
    text = LOADED + JOY + AGAIN.format(drawn=" Answer:", scored=" Answer: ")
    if templated:  # what a chat template adds is not known here
        text = text.replace("Answer: ", "Reply:")
        asked = '"Say a number."'
        messages = f'tok.apply_chat_template([dict(role="user", content={asked})], tokenize=False)'
        text = text.replace(f"asked = {asked}", f"asked = {messages}")
    assert audited(tmp_path, text).verdict == "inconclusive"
