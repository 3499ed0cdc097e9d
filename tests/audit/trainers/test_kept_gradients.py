"""Where a program's own loop sets its gradients to zero, and where it does not."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("transformers")
pytest.importorskip("datasets")

from tests.audit.loop_runs import LOADED, audited

# The difference of two answers' rewards, in two halves whose gradients are added.
LOOP = (
    LOADED
    + """
def score(text):
    return float(len(text))

question = tok("Name a fruit.", return_tensors="pt").input_ids
start = question.shape[1]
for _ in range(100):
    {first}
    with torch.no_grad():
        ids = model.generate(question, do_sample=True, top_k=0, num_return_sequences=2,
                             max_new_tokens=9,
                             pad_token_id=tok.pad_token_id)
    said = ids[:, start:]
    mask = said != tok.pad_token_id
    rewards = torch.tensor([score(text) for text in tok.batch_decode(said)])
    advantages = rewards - rewards.flip(0)
    for row in range(2):
        logits = model(ids[row : row + 1]).logits[:, start - 1 : -1]
        log_probs = logits.log_softmax(-1).gather(-1, said[row, None, :, None]).squeeze(-1)
        loss = -(log_probs * mask[row]).sum() * advantages[row]
        loss.backward()
    {before}
    adam.step()
    {after}
"""
)


def loop(first: str = "pass", before: str = "pass", after: str = "pass") -> str:
    return LOOP.format(first=first, before=before, after=after)


@pytest.mark.parametrize(
    "cleared",
    [
        {"first": "adam.zero_grad()"},
        {"after": "adam.zero_grad(set_to_none=False)"},
        {"after": "for p in model.parameters(): p.grad = None"},
    ],
)
def test_gradients_may_be_cleared_anywhere_between_two_steps(
    cleared: dict[str, str], tmp_path: Path
) -> None:
    report = audited(tmp_path, loop(**cleared))
    assert (report.verdict, report.findings) == ("unbiased", ()), report.summary


@pytest.mark.parametrize(
    "clipped", ["pass", "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"]
)
def test_gradients_that_are_never_cleared_are_a_fault_of_the_step(
    clipped: str, tmp_path: Path
) -> None:
    text = loop(before=clipped)
    report = audited(tmp_path, text)
    assert [finding.rule for finding in report.findings] == ["gradients-not-zeroed"], report.summary
    assert text.splitlines()[report.findings[0].line - 1].strip() == "adam.step()"
    assert report.verdict == "biased"
