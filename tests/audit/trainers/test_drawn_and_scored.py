"""What `top_p` cuts off shows where a word is likelier than it, and is scored or not."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("transformers")
pytest.importorskip("datasets")

from tests.audit.loop_runs import LOADED, audited

# Leave-one-out on two answers; the nucleus of 0.9 has both tokens wherever neither is that likely.
LOOP = (
    LOADED
    + """
def score(texts):
    return [float(len(text)) for text in texts]

def nucleus(logits):
    ordered, order = logits.sort(-1, descending=True)
    share = ordered.softmax(-1)
    cut = share.cumsum(-1) - share >= 0.9
    return logits.masked_fill(cut.scatter(-1, order, cut), float("-inf"))

question = tok("Name a fruit.", return_tensors="pt").input_ids
start = question.shape[1]
for _ in range(100):
    with torch.no_grad():
        ids = model.generate(question, do_sample=True, top_k=0, num_return_sequences=2,
                             max_new_tokens=9,
                             top_p=0.9, temperature=0.8, pad_token_id=tok.pad_token_id)
    said = ids[:, start:]
    mask = said != tok.pad_token_id
    rewards = torch.tensor(score(tok.batch_decode(said, skip_special_tokens=True)))
    advantages = (rewards - rewards.flip(0))[:, None]
    logits = {scored}
    log_probs = logits.log_softmax(-1).gather(-1, said[..., None]).squeeze(-1)
    loss = -(log_probs.masked_fill(~mask, 0.0) * advantages).sum(1).mean()
    adam.zero_grad()
    loss.backward()
    adam.step()
"""
)
TEMPERED = "model(ids).logits[:, start - 1:-1] / 0.8"


def test_a_nucleus_that_is_not_scored_is_a_fault(tmp_path: Path) -> None:
    """Neither of the probe's two tokens is cut off where both are likely."""
    report = audited(tmp_path, LOOP.format(scored=TEMPERED))
    assert [each.rule for each in report.findings] == ["behaviour-not-scored"], report.summary


def test_a_nucleus_that_is_scored_is_the_policy(tmp_path: Path) -> None:
    report = audited(tmp_path, LOOP.format(scored=f"nucleus({TEMPERED})"))
    assert (report.verdict, report.findings) == ("unbiased", ()), report.summary


def test_a_ratio_to_the_scores_of_generate_corrects_for_the_nucleus(tmp_path: Path) -> None:
    """It is 0.95 where the one token that is drawn has that probability: a correction, no fault."""
    drawn = "ids = model.generate("
    text = LOOP.format(scored="model(ids).logits[:, start - 1:-1]").replace(
        "    said = ids",
        "    ids, scores = ids.sequences, torch.stack(ids.scores, 1)\n    said = ids",
    )
    text = text.replace(drawn, f"{drawn}return_dict_in_generate=True, output_scores=True, inputs=")
    old = "scores.log_softmax(-1).gather(-1, said[..., None]).squeeze(-1)"
    whole = f"(log_probs - {old}).masked_fill(~mask, 0.0).sum(1, keepdim=True).exp()"
    text = text.replace("log_probs.masked_fill(~mask, 0.0) * advantages", f"{whole} * advantages")
    report = audited(tmp_path, text)
    assert (report.verdict, report.findings) == ("convention", ()), report.summary


@pytest.mark.parametrize("is_scored", [False, True])
def test_a_nucleus_shows_where_prompts_begin_with_the_same_logits(
    tmp_path: Path, is_scored: bool
) -> None:
    """Two prompts of one token each, repeated: an answer's first token has one probability."""
    logits = "model(ids, attention_mask=(ids != tok.pad_token_id).long()).logits[:, start - 1:-1]"
    text = LOOP.format(scored=f"nucleus({logits})" if is_scored else logits)
    text = text.replace("temperature=0.8, ", "").replace("generate(question", "generate(**both")
    text = text.replace(
        'question = tok("Name a fruit.", return_tensors="pt").input_ids',
        'both = tok(["Name a fruit.", "Or not."], padding=True, return_tensors="pt")\n'
        "question = both.input_ids",
    )
    text = text.replace("rewards.flip(0)", "rewards.view(-1, 2).flip(1).flatten()")
    report = audited(tmp_path, text)
    named = [each.rule for each in report.findings]
    assert named == ([] if is_scored else ["behaviour-not-scored"]), report.summary
    assert report.verdict == ("unbiased" if is_scored else "biased")


@pytest.mark.parametrize(
    ("scored", "rule"),
    [
        ("gather(-1, ids[:, start - 1 : -1, None])", "scored-other-action"),  # not shifted
        ("exp().log_softmax(1).gather(-1, said[..., None])", "softmax-over-steps"),
    ],
)
def test_what_is_picked_from_the_logits_is_named(scored: str, rule: str, tmp_path: Path) -> None:
    text = (
        LOOP.format(scored="model(ids).logits[:, start - 1 : -1]")
        .replace("top_p=0.9, temperature=0.8, ", "")
        .replace("gather(-1, said[..., None])", scored)
    )
    report = audited(tmp_path, text)
    line = {finding.rule: finding.line for finding in report.findings}[rule]
    assert scored in text.splitlines()[line - 1]
    assert report.verdict == "biased"
