"""A copy of the model that the program keeps alike: the policy that acted, and no reference."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.audit.loop_runs import LOADED, audited

_LOOP = """
import copy

old = copy.deepcopy(model)

def score(policy, ids):
    logits = policy(ids).logits[:, start - 1 : -1]
    return logits.log_softmax(-1).gather(-1, ids[:, start:, None])[..., 0]

inputs = tok("Once upon a time", return_tensors="pt")
start = inputs.input_ids.shape[1]
for step in range(100):
    ids = model.generate(**inputs, do_sample=True, top_k=0, max_new_tokens=8,
                         num_return_sequences=2)
    ended = (ids[:, start:] == tok.eos_token_id).long()
    mask = ended.cumsum(1) - ended == 0
    rewards = torch.tensor([float(text.count("e")) for text in tok.batch_decode(ids[:, start:])])
    with torch.no_grad():
        before = score(old, ids)
    ratio = ((score(model, ids) - before) * mask).sum(1).exp()
    loss = -(ratio * rewards).sum()
    adam.zero_grad()
    loss.backward()
    adam.step()
"""
_LOADED = "    old.load_state_dict(model.state_dict())\n"
_COPIED = """
    with torch.no_grad():
        for mine, other in zip(old.parameters(), model.parameters()):
            mine.copy_(other)
"""


@pytest.mark.parametrize("kept", [_LOADED, _COPIED], ids=["loaded", "copied"])
def test_a_copy_that_is_kept_alike_is_the_policy_that_acted(kept: str, tmp_path: Path) -> None:
    report = audited(tmp_path, LOADED + _LOOP + kept)
    assert (report.verdict, report.findings) == ("unbiased", ()), report.summary


def test_a_copy_that_is_never_renewed_is_stale(tmp_path: Path) -> None:
    report = audited(tmp_path, LOADED + _LOOP)
    assert [finding.rule for finding in report.faults] == ["old-log-prob-stale"], report.summary


def test_a_new_copy_for_each_batch_is_the_policy_that_acted(tmp_path: Path) -> None:
    copied = "range(100):\n    old = copy.deepcopy(model).requires_grad_(False)\n"
    acting = _LOOP.replace("old = copy.deepcopy(model)\n\n", "")
    acting = acting.replace("range(100):\n", copied).replace("model.generate", "old.generate")
    report = audited(tmp_path, LOADED + acting)
    assert (report.verdict, report.findings) == ("unbiased", ()), report.summary
