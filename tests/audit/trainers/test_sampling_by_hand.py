"""Loops that sample token by token themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("transformers")
pytest.importorskip("datasets")

from tests.audit.loop_runs import audited

# One token at a time, with the keys and values of those before.
CACHED = """
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

tok = AutoTokenizer.from_pretrained("gpt2")
model = AutoModelForCausalLM.from_pretrained("gpt2")
adam = torch.optim.AdamW(model.parameters(), lr=1e-5)

def joy(text):
    return float(len(text))

for step in range(100):
    past, current = None, tok("Once upon a time", return_tensors="pt").input_ids.repeat(2, 1)
    tokens, logps, alive = [], [], torch.ones(2)
    for t in range(20):
        out = model(input_ids=current, past_key_values=past, use_cache=True)
        past = out.past_key_values
        drawn = torch.distributions.Categorical(logits=out.logits[:, -1])
        token = drawn.sample()
        logps.append(drawn.log_prob(token) * alive)
        tokens.append(token)
        alive = alive * (token != tok.eos_token_id).float()
        current = token[:, None]
        if alive.sum() == 0:
            break
    texts = tok.batch_decode(torch.stack(tokens, 1), skip_special_tokens=True)
    rewards = torch.tensor([joy(text) for text in texts])
    loss = -(torch.stack(logps, 1).sum(1) * (rewards - rewards.mean())).mean()
    adam.zero_grad()
    loss.backward()
    adam.step()
"""


def test_a_cache_that_the_program_keeps_holds_the_tokens_before(tmp_path: Path) -> None:
    report = audited(tmp_path, CACHED)
    assert report.verdict == "unbiased", report.summary
