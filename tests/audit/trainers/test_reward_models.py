"""Rewards that a model of the program's own computes: found by what they depend on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.audit.loop_runs import LOADED, audited

_MODELS = """
from transformers import AutoModel

class Head(torch.nn.Module):
    def __init__(self, name):
        super().__init__()
        self.backbone = AutoModel.from_pretrained(name)
        self.head = torch.nn.Linear(self.backbone.config.hidden_size, 1)

    def forward(self, ids):
        return self.head(self.backbone(ids).last_hidden_state[:, -1]).squeeze(-1)

rater, critic = Head("gpt2"), Head("gpt2")
optimizer = torch.optim.Adam([*model.parameters(), *critic.parameters()], lr=1e-5)
"""
_LOOP = """
inputs = tok("Once upon a time", return_tensors="pt")
start = inputs.input_ids.shape[1]
for step in range(100):
    ids = model.generate(**inputs, do_sample=True, top_k=0, max_new_tokens=8,
                         num_return_sequences=2)
    ended = (ids[:, start:] == tok.eos_token_id).long()
    mask = ended.cumsum(1) - ended == 0
    with torch.no_grad():
        values = critic(ids[:, :start])
        REWARDS
    logits = model(ids).logits[:, start - 1 : -1]
    log_probs = logits.log_softmax(-1).gather(-1, ids[:, start:, None])[..., 0]
    loss = -(ADVANTAGE[:, None] * log_probs * mask).sum() / 2
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
_ONE_BY_ONE = """
        scores = []
        for row in ids:
            logit = rater(row[None])
            score = 2 * torch.sigmoid(logit) - 1
            scores.append(score)
        rewards = torch.cat(scores)
"""


def _report(folder: Path, rewards: str, advantage: str) -> tuple[str, str]:
    text = _LOOP.replace("        REWARDS\n", rewards.strip("\n") + "\n")
    report = audited(folder, LOADED + _MODELS + text.replace("ADVANTAGE", advantage))
    return report.verdict, " ".join((report.rule, report.summary, *report.notes))


@pytest.mark.parametrize(
    ("advantage", "rule"),
    [
        ("(rewards - rewards.mean())", "0.5 × (reward − mean of the"),
        ("((rewards - values) * 2.0)", "1 × reward + 0."),
    ],
    ids=["centred", "a critic's baseline"],
)
def test_what_a_models_number_is_turned_into_is_the_reward(
    advantage: str, rule: str, tmp_path: Path
) -> None:
    """Not the number, which comes first; nor the critic's value, which is trained."""
    verdict, said = _report(tmp_path, _ONE_BY_ONE, advantage)
    assert verdict in ("unbiased", "convention"), said
    assert "the rewards are those of `rewards` in line" in said
    assert rule in said


def test_what_depends_on_the_other_answers_is_no_reward(tmp_path: Path) -> None:
    """In its place, nothing of how the advantages are made would be seen."""
    together = """
        rewards = torch.special.expit(torch.stack([rater(row[None]) for row in ids])[:, 0])[:, None]
        shaped = (torch.nn.functional.normalize(rewards, dim=0) - rewards.mean())[:, 0]
    """
    verdict, said = _report(tmp_path, together.rstrip(" "), "shaped")
    assert "`shaped`" not in said
    assert verdict != "unbiased", said


def test_a_critics_errors_are_no_rewards(tmp_path: Path) -> None:
    """They come answer by answer, and move with parameters that are trained."""
    errors = """
        delta = torch.cat([rater(row[None]) - critic(row[None]) for row in ids])
    """
    verdict, said = _report(tmp_path, errors.rstrip(" "), "delta")
    assert verdict == "inconclusive"
    assert "found no reward" in said


_CLASSIFIER = """
from transformers import AutoModelForSequenceClassification
rater = AutoModelForSequenceClassification.from_pretrained("lvwerra/distilbert-imdb")
optimizer = torch.optim.Adam(model.parameters(), lr=1e-5)
"""


@pytest.mark.parametrize(
    "of",
    ["[:, 1:].sigmoid().squeeze(-1)", ".softmax(-1)[:, 1]"],
    ids=["sigmoid", "softmax"],
)
def test_a_classifier_may_have_two_labels(of: str, tmp_path: Path) -> None:
    text = _LOOP.replace("        REWARDS\n", f"        rewards = rater(ids).logits{of}\n")
    text = text.replace("        values = critic(ids[:, :start])\n", "")
    report = audited(tmp_path, LOADED + _CLASSIFIER + text.replace("ADVANTAGE", "rewards"))
    assert report.verdict == "unbiased", report.text()
    assert any("the rewards are those of `rewards` in line" in note for note in report.notes)


def test_groups_on_which_the_program_stops_are_left_out(tmp_path: Path) -> None:
    """It keeps the answers with a word, and fails where there is none."""
    kept = """
        ids = torch.cat([row[None] for row in ids if row[start] != tok.eos_token_id])
        mask = mask[: len(ids)]
        rewards = rater(ids)
    """
    text = _LOOP.replace("        REWARDS\n", kept.strip("\n").rstrip(" "))
    text = text.replace(
        "mask = mask[: len(ids)]", "mask = (ids[:, start:] == 1) | (ids[:, start:].cumsum(1) == 0)"
    )
    text = text.replace("ADVANTAGE", "rewards")
    report = audited(tmp_path, LOADED + _MODELS + text)
    assert any("groups of answers the program stops at" in note for note in report.notes)
