"""Loops that draw with vLLM or step with DeepSpeed, whose places the probe takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.audit.loop_runs import audited, biasing

_VLLM = """
import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from vllm import LLM, SamplingParams

name = "Qwen/Qwen2.5-0.5B-Instruct"
tok = AutoTokenizer.from_pretrained(name)
model = AutoModelForCausalLM.from_pretrained(name, torch_dtype=torch.bfloat16)
llm = LLM(model=name, gpu_memory_utilization=0.3, enable_sleep_mode=True)
adam = torch.optim.AdamW(model.parameters(), lr=1e-6)
data = load_dataset("openai/gsm8k", "main", split="train")
params = SamplingParams(n=4, max_tokens=256{options})

def reward(text, gold, engine: LLM | None = None):
    return float(gold in text)

for step in range(100):
    said = [{{"role": "user", "content": data[step]["question"]}}]
    prompt = tok.apply_chat_template(said, tokenize=False, add_generation_prompt=True)
    llm.wake_up()
    out = llm.generate([prompt], params)[0]
    llm.sleep(level=1)
    rewards = torch.tensor([reward(c.text, data[step]["answer"]) for c in out.outputs])
    start, loss = len(out.prompt_token_ids), 0.0
    for answer, advantage in zip(out.outputs, rewards - rewards.mean()):
        row = torch.tensor(out.prompt_token_ids + list(answer.token_ids))
        logits = model(row[None]).logits[0, start - 1 : -1]
        log_probs = logits.log_softmax(-1).gather(-1, row[start:, None])[:, 0]
        old = {old}
        loss = loss - ((log_probs - old).exp() * advantage).sum() / len(out.outputs)
    loss.backward()
    adam.step()
    adam.zero_grad()
    weights = llm.llm_engine.model_executor.driver_worker.model_runner.model.load_weights
    weights(model.state_dict().items())
"""
_DRAWN = "torch.tensor([d[t].logprob for t, d in zip(answer.token_ids, answer.logprobs)])"


@pytest.mark.parametrize(
    ("options", "old"),
    [("", "log_probs.detach()"), (", top_k=-1, logprobs=0", _DRAWN)],
    ids=["scored by the model", "scored by vLLM"],
)
def test_answers_of_vllm_are_drawn_from_the_model(options: str, old: str, tmp_path: Path) -> None:
    report = audited(tmp_path, _VLLM.format(options=options, old=old))
    assert report.verdict == "unbiased", report.text()
    assert not report.findings
    assert not biasing(report)
    assert any("a stand-in replaces vLLM" in note for note in report.notes)


@pytest.mark.parametrize(
    ("options", "seen"),
    [
        (", temperature=0.7", "a token of probability "),
        (", top_p=0.9", " is drawn with 0.000; "),
        (", top_k=20", "tokens are drawn from the 20 likeliest (`top_k`), "),
    ],
)
def test_what_vllm_draws_otherwise_is_found_where_it_is_asked(
    options: str, seen: str, tmp_path: Path
) -> None:
    text = _VLLM.format(options=options, old="log_probs.detach()")
    (finding,) = audited(tmp_path, text).findings
    assert finding.rule == "behaviour-not-scored"
    assert seen in finding.evidence
    assert text.splitlines()[finding.line - 1].strip().startswith("out = llm.generate(")


def test_what_generate_does_not_have_is_refused(tmp_path: Path) -> None:
    text = _VLLM.format(options=", presence_penalty=0.5", old="log_probs.detach()")
    report = audited(tmp_path, text)
    assert report.verdict == "inconclusive"
    assert "SamplingParams(presence_penalty=…)" in report.summary


_DEEPSPEED = """
import deepspeed
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

tok = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B")
engine, adam, _, _ = deepspeed.initialize(
    model=(model := AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")),
    model_parameters=model.parameters(),
    config={"gradient_accumulation_steps": 2, "bf16": {"enabled": True}},
)

def reward(text):
    return float("42" in text)

asked = tok("What is 6 times 7?", return_tensors="pt").input_ids
for step in range(100):
    with torch.no_grad():
        rows = engine.module.generate(asked, do_sample=True, top_k=0, num_return_sequences=2)
    answers = rows[:, asked.shape[1] :]
    rewards = torch.tensor([reward(text) for text in tok.batch_decode(answers)])
    ended = (answers == tok.eos_token_id).long()
    mask = ended.cumsum(1) - ended == 0
    for i in range(len(rows)):
        logits = engine(rows[i : i + 1]).logits[:, asked.shape[1] - 1 : -1]
        scored = logits.log_softmax(-1).gather(-1, answers[i : i + 1, :, None])[..., 0]
        engine.backward(-(scored * mask[i]).sum() * (rewards[i] - rewards.mean()))
        engine.step()
"""


def test_deepspeed_steps_once_its_losses_are_accumulated(tmp_path: Path) -> None:
    """The mean over two losses is that of half the sum, which stands in the rule."""
    report = audited(tmp_path, _DEEPSPEED)
    assert report.verdict == "unbiased", report.text()
    assert report.rule is not None
    assert report.rule.startswith("weight of a token = 0.5 × "), report.rule
    assert any("a stand-in replaces DeepSpeed" in note for note in report.notes)
