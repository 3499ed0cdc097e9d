"""What a program draws from and what it scores, where only a vocabulary of many tokens shows it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from eligibility.audit.trainers.in_order import Order, by_token, places_in
from tests.audit.loop_runs import LOADED, audited

LOOP = (
    LOADED
    + """
from transformers import GenerationConfig, LogitsProcessorList, TopKLogitsWarper


def score(text):
    return float(len(text))


def kept(logits, most=50):
    return logits.masked_fill(logits < logits.topk(most).values[..., [-1]], -float("inf"))


def by_hand(ids):
    start, ended = ids.shape[1], torch.zeros(len(ids), 1, dtype=torch.bool)
    while ids.shape[1] < start + 9 and not ended.all():
        logits = model(ids).logits[:, -1]
        token = DRAWN
        token = token.masked_fill(ended, tok.pad_token_id)
        ids, ended = torch.cat([ids, token], 1), ended | (token == tok.eos_token_id)
    return ids


def in_order(logits, order, cut=0.0):
    probs = logits.softmax(-1).gather(-1, order)
    outside = (probs.cumsum(-1) - probs > cut) & (cut > 0)
    return order.gather(-1, probs.masked_fill(outside, 0.0).multinomial(1))


question = tok(["Name a fruit."] * 2, return_tensors="pt").input_ids
start = question.shape[1]
for _ in range(100):
    with torch.no_grad():
        ids = GENERATED
    said = ids[:, start:]
    mask = said != tok.pad_token_id
    texts = tok.batch_decode(said, skip_special_tokens=True)
    rewards = torch.tensor([score(text) for text in texts])
    log_probs = SCORED(model(ids).logits[:, start - 1:-1]).log_softmax(-1)
    log_probs = log_probs.gather(-1, said[..., None]).squeeze(-1)
    loss = -(log_probs.masked_fill(~mask, 0.0) * (rewards - rewards.flip(0))[:, None]).sum()
    adam.zero_grad()
    loss.backward()
    adam.step()
"""
)
SAMPLES = "model.generate(question, do_sample=True, max_new_tokens=9, OPTIONS)"
FILTER = "logits_processor=LogitsProcessorList([TopKLogitsWarper(9)]), top_k=0"
SETTINGS = "GenerationConfig(top_k=0, do_sample=True, pad_token_id=tok.pad_token_id)"
TOKEN = "logits.softmax(-1).multinomial(1)"


def of(generated: str = "by_hand(question)", drawn: str = TOKEN, scored: str = "") -> str:
    """The loop, with what is drawn and scored in it."""
    text = LOOP.replace("GENERATED", generated).replace("DRAWN", drawn)
    return text.replace("SCORED", scored)


@pytest.mark.parametrize(
    ("options", "seen", "fix"),
    [
        ("", "from the 50 likeliest", "top_k=0"),  # transformers' default
        ("top_k=20", "from the 20 likeliest", "top_k=0"),
        ("top_k=0, min_p=0.05", "of a vocabulary of 4,100 tokens the program draws from", "all"),
        (FILTER, "the program draws from 9,", "all"),
        ("top_k=0, min_new_tokens=4", "with `min_new_tokens=4`, ", "without min_new_tokens=4"),
        ("top_k=0, num_beams=2", "with `num_beams=2`, ", "without num_beams=2"),
    ],
)
def test_tokens_that_generate_never_draws_are_scored(
    options: str, seen: str, fix: str, tmp_path: Path
) -> None:
    text = of(SAMPLES.replace("OPTIONS", options))
    report = audited(tmp_path, text)
    assert report.verdict == "biased", report.text()
    [finding] = report.findings
    assert (finding.rule, seen in finding.evidence) == ("behaviour-not-scored", True), finding
    assert fix in finding.fix
    assert "model.generate(" in text.splitlines()[finding.line - 1]


@pytest.mark.parametrize(
    ("options", "verdict"),
    [("top_k=0", "biased"), ("top_k=0, top_p=1.0, temperature=1.0", "unbiased")],
)
def test_settings_that_a_model_comes_with_are_those_of_the_draw(
    options: str, verdict: str, tmp_path: Path
) -> None:
    """They are read where they are on this machine; what the program asks for goes before them."""
    settings = {"top_k": 20, "top_p": 0.8, "temperature": 0.7, "eos_token_id": [151_645, 151_643]}
    (tmp_path / "tuned").mkdir()
    (tmp_path / "tuned" / "generation_config.json").write_text(json.dumps(settings))
    text = of(SAMPLES.replace("OPTIONS", options))
    loaded = 'AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")'
    report = audited(tmp_path, text.replace(loaded, loaded.replace("Qwen/Qwen2.5-0.5B", "tuned")))
    assert report.verdict == verdict, report.text()
    assert any("temperature=0.7, top_k=20, top_p=0.8" in note for note in report.notes)


@pytest.mark.parametrize("used", [False, True])
def test_scores_that_a_program_asks_for_count_where_its_loss_uses_them(
    used: bool, tmp_path: Path
) -> None:
    """Their number alone is the answer's length; a ratio to them corrects for the draw."""
    scored = "return_dict_in_generate=True, output_scores=True"
    text = of(SAMPLES.replace("OPTIONS", scored)).replace(
        "    said = ids",
        "    ids, scores = ids.sequences, torch.stack(ids.scores, 1)\n    said = ids",
    )
    old = "scores.log_softmax(-1).gather(-1, said[..., None]).squeeze(-1)"
    ratio = f"(log_probs - {old}).masked_fill(~mask, 0.0).sum(1, keepdim=True).exp()"
    if used:
        text = text.replace("log_probs.masked_fill(~mask, 0.0) *", f"{ratio} *")
    report = audited(tmp_path, text)
    assert [each.rule for each in report.findings] == ([] if used else ["behaviour-not-scored"])


@pytest.mark.parametrize(
    ("drawn", "shown"),
    [
        ("kept(logits).softmax(-1).multinomial(1)", "logits.topk(most)"),
        (
            "logits.topk(40).indices.gather(-1, logits.topk(40).values.softmax(-1).multinomial(1))",
            "logits.topk(40)",
        ),
        ("in_order(logits, logits.sort(-1, True).indices, 0.9)", "logits.sort("),
        ("logits.where(logits > logits.amax() - 3.0, -1e9).softmax(-1).multinomial(1)", "DRAWN"),
    ],
    ids=["likeliest", "of a list", "nucleus", "close to the likeliest"],
)
def test_tokens_that_a_program_never_draws_itself_are_scored(
    drawn: str, shown: str, tmp_path: Path
) -> None:
    text = of(drawn=drawn)
    report = audited(tmp_path, text)
    assert report.verdict == "biased", report.text()
    [finding] = report.findings
    assert finding.rule == "behaviour-not-scored"
    assert shown.replace("DRAWN", drawn) in text.splitlines()[finding.line - 1]


@pytest.mark.parametrize(
    "text",
    [
        of(SAMPLES.replace("OPTIONS", "top_k=0")),
        of(SAMPLES.replace("OPTIONS", f"generation_config={SETTINGS}, stopping_criteria=None")),
        of(SAMPLES.replace("OPTIONS", ""), scored="kept"),
        of(drawn="kept(logits).softmax(-1).multinomial(1)", scored="kept"),
        of(drawn="kept(logits, 100_000).softmax(-1).multinomial(1)"),
        of(drawn="in_order(logits, logits.argsort(-1))"),
        of(drawn="in_order(logits, logits.sort(-1, True).indices)"),
    ],
    ids=[
        "all",
        "settings",
        "kept",
        "kept by hand",
        "more than there are",
        "ascending",
        "descending",
    ],
)
def test_what_is_drawn_is_what_is_scored(text: str, tmp_path: Path) -> None:
    report = audited(tmp_path, text)
    assert (report.verdict, report.findings) == ("unbiased", ()), report.text()


def test_an_order_is_known_by_its_probabilities() -> None:
    """Those that were put back to their tokens are in no order, but for the one they have."""
    order, probs = Order(), torch.tensor([[0.2, 0.5, 0.3, 0.0]], dtype=torch.float64)
    sorted_, tokens = probs.sort(descending=True)
    order.met(torch.sort, (), {"descending": True, "input": probs}, (sorted_, tokens))
    assert order.of(probs) is None
    found = order.of(sorted_)
    assert found is not None
    assert by_token(sorted_, found, 5).tolist() == [[0.2, 0.5, 0.3, 0.0, 0.0]]
    assert places_in(found, torch.tensor([[2]])).tolist() == [[1]]
