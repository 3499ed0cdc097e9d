"""Programs that leave the last token out of what the model reads, and score it all the same."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

pytest.importorskip("transformers")
pytest.importorskip("datasets")

from eligibility.audit.trainers.scored import with_last_token
from tests.audit.loop_runs import LOADED, audited

LOOP = (
    LOADED
    + """
def score(text):
    return float(len(text))

question = tok("Name a fruit.", return_tensors="pt")
start = question.input_ids.shape[1]
for _ in range(100):
    with torch.no_grad():
        ids = model.generate(**question, do_sample=True, top_k=0, max_new_tokens=9,
                             num_return_sequences=2)
    answers = tok.batch_decode(ids[:, start:], skip_special_tokens=True)
    rewards = torch.tensor([score(answer) for answer in answers])
    advantages = rewards - rewards.flip(0)
    loss = 0.0
    for chosen in ROWS:
        part = ids[chosen]
        mask = (part[:, start:] != tok.pad_token_id).float()
        log_probs = model(part[:, :-1]).logits.log_softmax(-1).gather(-1, part[:, 1:, None])
        log_probs = (log_probs.squeeze(-1)[:, start - 1 :] * mask).sum(1)
        loss = loss - (log_probs * advantages[chosen]).sum() / 2
    adam.zero_grad()
    loss.backward()
    adam.step()
"""
)


@pytest.mark.parametrize("rows", ["[[0, 1]]", "[[1, 0]]", "[[1], [0]]"])
def test_a_token_that_is_scored_without_being_read_belongs_to_its_row(
    rows: str, tmp_path: Path
) -> None:
    report = audited(tmp_path, LOOP.replace("ROWS", rows))
    assert report.verdict == "unbiased", report.text()
    assert not report.findings


def test_only_the_last_token_of_a_batch_is_found_behind_what_is_cut_from_it() -> None:
    batch = torch.arange(24).reshape(4, 6)
    assert torch.equal(with_last_token(batch[:, :-1]), batch)
    assert torch.equal(with_last_token(batch[1:3, 2:-1]), batch[1:3, 2:])
    for other in (
        batch,
        batch[:, :-2],
        batch[:, 1:],
        batch[:, :-1].clone(),
        batch.T[:-1],
        batch[:1].expand(4, 6),
    ):
        assert with_last_token(other) is other
