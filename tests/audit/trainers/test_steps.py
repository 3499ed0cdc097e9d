"""Optimizer steps that depend on the answers, or on numbers that must fit each other."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("transformers")
pytest.importorskip("datasets")

from tests.audit.loop_runs import LOADED, audited

# GRPO that leaves the end token out, and a batch with an answer of nothing else. Fewer answers
# than a batch has are not trained on at all.
BATCHES = """
from torch.utils.data import DataLoader

GROUP = 12
BATCH = 8

def joy(text):
    return float(len(text))

class Row(dict):
    def to(self, device):
        return Row({name: value.to(device) for name, value in self.items()})

def joined(rows):
    longest = max(len(row["ids"]) for row in rows)
    batch = Row()
    for name, width in (("ids", longest), ("mask", longest - 1)):
        padded = [torch.nn.functional.pad(r[name], (0, width - len(r[name]))) for r in rows]
        batch[name] = torch.stack(padded)
    return Row(batch, advantage=torch.stack([row["advantage"] for row in rows]))

for step in range(100):
    rows = []
    for prompt in ("Once upon a time", "Two"):
        given = tok(prompt, return_tensors="pt").input_ids.repeat(GROUP, 1)
        with torch.no_grad():
            ids = model.generate(given, do_sample=True, max_length=40, top_k=0, pad_token_id=0)
        texts = tok.batch_decode(ids[:, given.shape[1] :], skip_special_tokens=True)
        rewards = torch.tensor([joy(text) for text in texts])
        advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-8)
        mask = torch.zeros_like(ids, dtype=torch.bool)
        mask[:, given.shape[1] :] = True
        mask[ids == tok.eos_token_id] = False
        mask = mask[:, 1:]
        rows += [Row(ids=i, mask=m, advantage=a) for i, m, a in zip(ids, mask, advantages)]
    data = DataLoader(rows, BATCH, shuffle=True, drop_last=True, collate_fn=joined)
    for batch in data:
        batch = batch.to("cpu")
        logits = model(batch["ids"]).logits[:, :-1]
        logps = logits.log_softmax(-1).gather(-1, batch["ids"][:, 1:, None]).squeeze(-1)
        each = (logps * batch["mask"]).sum(1) / batch["mask"].sum(1)
        loss = -(each * batch["advantage"]).mean()
        adam.zero_grad()
        if not loss.isfinite():
            continue
        loss.backward()
        adam.step()
"""


def test_batches_that_are_left_out_and_numbers_that_must_fit(tmp_path: Path) -> None:
    report = audited(tmp_path, LOADED + BATCHES)
    assert {finding.rule for finding in report.findings} == {"last-step-dropped"}
    (finding,) = report.findings
    text = LOADED + BATCHES
    assert finding.line == 1 + text[: text.index("mask[ids ==")].count("\n")
    assert any("leaves out some of its steps" in note for note in report.notes)
    assert "whitened" in {convention.name for convention in report.conventions}


# Supervised training at first; the policy is a copy of the model that it leaves behind.
AFTER_SUPERVISION = """
import copy

for text in ("One day", "A cat sat"):
    ids = tok(text, return_tensors="pt").input_ids
    adam.zero_grad()
    model(ids, labels=ids).loss.backward()
    adam.step()

def joy(text):
    return float(len(text))

policy = copy.deepcopy(model)
adam = torch.optim.AdamW(policy.parameters(), lr=1e-5)
for step in range(100):
    given = tok("Once upon a time", return_tensors="pt").input_ids.repeat(2, 1)
    start = given.shape[1]
    ids = policy.generate(given, do_sample=True, max_new_tokens=20, top_k=0)
    rewards = torch.tensor([joy(text) for text in tok.batch_decode(ids[:, start:])])
    ends = (ids[:, start:] == tok.eos_token_id).long()
    mask = (ends.cumsum(1) - ends == 0).float()
    logits = policy(ids).logits[:, start - 1 : -1]
    logps = logits.log_softmax(-1).gather(-1, ids[:, start:, None]).squeeze(-1)
    loss = -(logps * mask * rewards[:, None]).sum(1).mean()
    adam.zero_grad()
    loss.backward()
    adam.step()
"""


def test_a_policy_may_be_made_after_supervised_training(tmp_path: Path) -> None:
    report = audited(tmp_path, LOADED + AFTER_SUPERVISION)
    assert report.verdict == "unbiased", report.summary
