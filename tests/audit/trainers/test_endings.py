"""Programs of language models that end before anything is measured, or load what is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("transformers")
pytest.importorskip("datasets")

from tests.audit.loop_runs import audited

LEFT = """
import sys
from transformers import AutoModelForCausalLM

def train():
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    raise ValueError("no such column")

try:
    train()
except Exception as error:
    print(error)
    sys.exit(1)
"""
ADAPTER = """
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

tok = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B")
model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B"),
                                  "checkpoints/sft", is_trainable=True)
adam = torch.optim.AdamW(model.parameters(), lr=1e-6)

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
    log_probs = model(input_ids=ids).logits[:, :-1].log_softmax(-1).gather(-1, ids[:, 1:, None])
    mask = (ids[:, start:] != tok.pad_token_id).float()
    log_probs = (log_probs.squeeze(-1)[:, start - 1:] * mask).sum(1)
    loss = -(log_probs * (rewards - rewards.flip(0))).mean()
    adam.zero_grad()
    loss.backward()
    adam.step()
"""


def test_a_program_that_leaves_tells_what_it_caught(tmp_path: Path) -> None:
    report = audited(tmp_path, LEFT)
    assert report.verdict == "inconclusive"
    expected = f"the program stopped at {tmp_path / 'train.py'}:7: ValueError: no such column"
    assert report.summary == expected


@pytest.mark.parametrize("both", [False, True])
def test_an_adapter_that_is_loaded_by_name_is_a_new_one(both: bool, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    loaded = 'AutoPeftModelForCausalLM.from_pretrained("checkpoints/sft", is_trainable=True)'
    begin, end = ADAPTER.index("model = PeftModel"), ADAPTER.index("adam =")
    text = f"{ADAPTER[:begin]}model = {loaded}\n{ADAPTER[end:]}" if both else ADAPTER
    report = audited(
        tmp_path, text.replace("import PeftModel", "import AutoPeftModelForCausalLM, PeftModel")
    )
    assert report.verdict == "unbiased", report.summary
