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


# The answers are trained on twice, in minibatches in a random order.
TWICE = """
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

tok = AutoTokenizer.from_pretrained("gpt2")
model = AutoModelForCausalLM.from_pretrained("gpt2")
adam = torch.optim.AdamW(model.parameters(), lr=1e-5)

def joy(texts):
    return [float(len(text)) for text in texts]

def log_probs(ids, start):
    logits = model(ids).logits[:, start - 1 : -1]
    return logits.log_softmax(-1).gather(2, ids[:, start:, None]).squeeze(2)

for step in range(100):
    ids = tok(["Once upon a time"] * 2, return_tensors="pt").input_ids
    start, ended = ids.shape[1], torch.zeros(2, dtype=torch.bool)
    for t in range(20):
        with torch.no_grad():
            drawn = torch.distributions.Categorical(logits=model(ids).logits[:, -1])
        token = drawn.sample()
        token = token.masked_fill(ended, tok.eos_token_id)
        ids, ended = torch.cat([ids, token[:, None]], 1), ended | (token == tok.eos_token_id)
        if ended.all():
            break
    answers = ids[:, start:]
    mask = ((answers == tok.eos_token_id).cumsum(1).cumsum(1) <= 1).double()
    rewards = torch.tensor(joy(tok.batch_decode(answers, skip_special_tokens=True)))
    advantages = {advantages}
    with torch.no_grad():
        old = log_probs(ids, start)
    for epoch in range({epochs}):
        for rows in torch.randperm(2).split(1):
            ratio = (log_probs(ids[rows], start) - old[rows]).exp()
            loss = -(ratio * advantages[rows] * mask[rows]).sum(1).mean()
            adam.zero_grad()
            loss.backward()
            adam.step()
"""


def test_a_second_epoch_of_answers_that_the_program_samples_itself(tmp_path: Path) -> None:
    text = TWICE.format(advantages="(rewards - rewards.mean())[:, None]", epochs=2)
    report = audited(tmp_path, text)
    assert report.verdict in ("unbiased", "convention"), report.summary
    assert report.updates == 2


def test_tokens_may_be_drawn_by_gumbel_noise(tmp_path: Path) -> None:
    """And at which temperature they are drawn is read of it."""
    text = TWICE.format(advantages="rewards[:, None]", epochs=1)
    text = text.replace(
        "drawn = torch.distributions.Categorical(logits=model(ids).logits[:, -1])",
        "z = model(ids).logits[:, -1] / 0.7",
    )
    text = text.replace("drawn.sample()", "(z - (-torch.rand_like(z).log()).log()).argmax(-1)")
    report = audited(tmp_path, text)
    assert [finding.rule for finding in report.findings] == ["behaviour-not-scored"], report.summary


def test_rewards_that_are_summed_up_to_a_token_are_those_so_far(tmp_path: Path) -> None:
    at_the_end = "torch.nn.functional.one_hot(mask.sum(1).long() - 1, mask.shape[1])"
    centred = "(rewards - rewards.mean())[:, None]"
    text = TWICE.format(advantages=f"({at_the_end} * {centred}).cumsum(1)", epochs=1)
    report = audited(tmp_path, text)
    assert [finding.rule for finding in report.findings] == ["rewards-so-far"], report.summary


# Another model scores the answers too, so it is the last one that the audit has run.
PENALISED = """
import copy
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

tok = AutoTokenizer.from_pretrained("gpt2")
model = AutoModelForCausalLM.from_pretrained("gpt2")
ref = copy.deepcopy(model).eval()
adam = torch.optim.AdamW(model.parameters(), lr=1e-5)

def joy(texts):
    return [float(len(text)) for text in texts]

def log_probs(which, ids, start):
    logits = which(ids).logits[:, start - 1 : -1]
    return logits.log_softmax(-1).gather(2, ids[:, start:, None]).squeeze(2)

for step in range(100):
    ids = tok(["Once upon a time"] * 2, return_tensors="pt").input_ids
    start, ended = ids.shape[1], torch.zeros(2, dtype=torch.bool)
    for t in range(20):
        with torch.no_grad():
            token = torch.distributions.Categorical(logits=model(ids).logits[:, -1]).sample()
        token = token.masked_fill(ended, tok.eos_token_id)
        ids, ended = torch.cat([ids, token[:, None]], 1), ended | (token == tok.eos_token_id)
        if ended.all():
            break
    answers = ids[:, start:]
    mask = ((answers == tok.eos_token_id).cumsum(1).cumsum(1) <= 1).float()
    rewards = torch.tensor(joy(tok.batch_decode(answers, skip_special_tokens=True)))
    logps = log_probs(model, ids, start)
    with torch.no_grad():
        rewards = rewards - 0.1 * ((logps - log_probs(ref, ids, start)) * mask).sum(1)
    loss = -((logps * mask).sum(1) * (rewards - rewards.mean())).mean()
    adam.zero_grad()
    loss.backward()
    adam.step()
"""


def test_a_divergence_from_another_model_may_be_in_the_reward(tmp_path: Path) -> None:
    report = audited(tmp_path, PENALISED)
    assert report.verdict == "convention", report.summary
    assert {choice.name for choice in report.conventions} == {"centred", "kl-in-reward"}
