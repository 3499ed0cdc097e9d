"""Rewards that a program gives to other answers, and answers that it scores after other tokens."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("transformers")
pytest.importorskip("datasets")

from tests.audit.loop_runs import LOADED, audited

# Two prompts of two answers each, which stand side by side; each reward less the other one.
LOOP = (
    LOADED
    + """
def score(text):
    return float(len(text))

questions = tok(["Name a fruit.", "Name another one."], return_tensors="pt", padding=True)
start = questions.input_ids.shape[1]
for _ in range(100):
    with torch.no_grad():
        ids = model.generate(**questions, do_sample=True, top_k=0, num_return_sequences=2,
                             max_new_tokens=9, pad_token_id=tok.pad_token_id)
    mask = (ids != tok.pad_token_id)[:, 1:].double()
    mask[:, :start - 1] = 0
    groups = [[], []]
    for i, text in enumerate(tok.batch_decode(ids[:, start:], skip_special_tokens=True)):
        groups[{group}].append(score(text))
    rewards = torch.tensor(groups)
    advantages = {advantages}.reshape(-1, 1)
    logits = model(ids{mask}).logits[:, :-1]
    log_probs = logits.log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1)
    loss = -(log_probs * mask * advantages).sum(1).mean()
    adam.zero_grad()
    loss.backward()
    adam.step()
"""
)
PAIRS = "(rewards - rewards.flip(1))"
MASK = ", attention_mask=(ids != tok.pad_token_id).long()"


def loop(group: str, advantages: str = PAIRS, mask: str = MASK) -> str:
    return LOOP.format(group=group, advantages=advantages, mask=mask)


def test_rewards_that_go_to_other_answers_are_found(tmp_path: Path) -> None:
    """By turns: answers at the same place of both prompts share a group, and two of four have no
    part in their own advantage; what the others do is half of the policy gradient.
    """
    report = audited(tmp_path, loop("i % 2"))
    named = [(each.rule, each.severity) for each in report.findings]
    assert named == [("reward-of-another-answer", "warning")]
    assert report.verdict == "unbiased", report.summary
    assert report.components["reward"] == pytest.approx(0.5)


def test_rewards_of_other_answers_are_a_fault_where_they_are_whitened(tmp_path: Path) -> None:
    whitened = "((rewards - rewards.mean(1, True)) / (rewards.std(1, keepdim=True) + 1e-6))"
    report = audited(tmp_path, loop("i % 2", whitened))
    named = [(each.rule, each.severity) for each in report.findings]
    assert named == [("reward-of-another-answer", "fault")], report.summary
    assert (report.verdict, report.residual > 0.1) == ("biased", True)
    assert "whitened" in {each.name for each in report.conventions}


def test_advantages_of_other_answers_have_the_means_of_their_own_groups(tmp_path: Path) -> None:
    whitened = "((rewards - rewards.mean(1, True)) / (rewards.std(1, keepdim=True) + 1e-3)).T"
    report = audited(tmp_path, loop("i // 2", whitened))
    named = [(each.rule, each.severity) for each in report.findings]
    assert named == [("reward-of-another-answer", "fault")], report.summary
    assert "each with the mean of its own group" in report.rule
    assert "group (N − 1) + 1.0e-03" in report.rule


def test_answers_that_are_compared_with_those_to_other_prompts_are_found(tmp_path: Path) -> None:
    """Prompts in turn, and groups of rows that lie side by side."""
    tiled = LOOP.replace(
        "model.generate(**questions, do_sample=True, top_k=0, num_return_sequences=2,",
        "model.generate(questions.input_ids.repeat(2, 1), do_sample=True, top_k=0,"
        " attention_mask=questions.attention_mask.repeat(2, 1),",
    )
    whitened = "((rewards - rewards.mean(1, True)) / (rewards.std(1, keepdim=True) + 1e-6))"
    text = tiled.format(group="i // 2", advantages=whitened, mask=MASK)
    report = audited(tmp_path, text)
    named = [(each.rule, each.severity) for each in report.findings]
    assert named == [("reward-of-another-answer", "fault")], report.summary
    assert "reward − mean of the answers with its number" in report.rule
    assert "deviation of the answers with its number (N − 1) + 1.0e-06" in report.rule
    line = next(i for i, code in enumerate(text.splitlines(), 1) if "rewards.mean" in code)
    assert abs(report.findings[0].line - line) <= 1


def test_rewards_of_a_prompt_s_own_answers_are_read_exactly(tmp_path: Path) -> None:
    report = audited(tmp_path, loop("i // 2"))
    assert (report.verdict, report.findings) == ("unbiased", ()), report.summary


def test_scores_without_the_mask_of_the_draw_are_those_of_another_policy(tmp_path: Path) -> None:
    report = audited(tmp_path, loop("i // 2", mask=""))
    assert [each.rule for each in report.findings] == ["behaviour-not-scored"], report.summary
    assert any("attention mask" in note for note in report.notes)


def test_answers_that_are_drawn_without_a_mask_may_be_scored_so(tmp_path: Path) -> None:
    """Where padding is the end, `generate` reads it, as the scores do."""
    text = loop("i // 2", mask="").replace("**questions", "questions.input_ids")
    ending = "tok.pad_token = tok.eos_token\n\ndef score"
    report = audited(
        tmp_path, text.replace("def score", ending).replace("Qwen/Qwen2.5-0.5B", "gpt2")
    )
    assert "behaviour-not-scored" not in {each.rule for each in report.findings}
