"""Training loops of other styles: what each of them once made the audit stumble over."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("transformers")
pytest.importorskip("datasets")

from tests.audit.loop_runs import audited, biasing

# GRPO on two prompts at a time, one of them padded, with a frozen copy as reference.
BATCHED = """
import copy
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

tok = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B-Instruct", padding_side="left")
tok.pad_token = tok.eos_token
policy = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B-Instruct")
frozen = copy.deepcopy(policy).requires_grad_(False)
adam = torch.optim.Adam(policy.parameters(), lr=1e-6)
PROMPTS, G, BETA = {prompts}, 2, 0.05

def logps(net, ids, seen, width):
    logits = net(input_ids=ids, attention_mask=seen).logits[:, -width - 1 : -1]
    return logits.log_softmax(-1).gather(-1, ids[:, -width:, None]).squeeze(-1)

def score(completions):
    return [float(len(text)) for text in completions]

def up_to_the_end(answers):
    ends = (answers == tok.eos_token_id).long()
    return ({mask}).long()

def update():
    batch = tok(PROMPTS, return_tensors="pt", padding=True)
    with torch.no_grad():
        ids = policy.generate(**batch, do_sample=True, top_k=0, max_new_tokens=50,
                              num_return_sequences=G)
    answers = ids[:, batch["input_ids"].shape[1] :]
    mask = up_to_the_end(answers)
    seen = torch.cat([batch["attention_mask"].repeat_interleave(G, 0), mask], 1)
    rewards = torch.tensor(score(tok.batch_decode(answers, skip_special_tokens=True)))
    grouped = rewards.view(len(PROMPTS), G)
    centred = grouped - grouped.mean(1, keepdim=True)
    advantages = (centred / (grouped.std(1, keepdim=True) + 1e-4)).view(-1, 1)
    now = logps(policy, ids, seen, answers.shape[1])
    with torch.no_grad():
        then = logps(frozen, ids, seen, answers.shape[1])
    kl = (then - now).exp() - (then - now) - 1
    gain = (now - now.detach()).exp() * advantages - BETA * kl
    loss = -((gain * mask).sum(1) / {count}).mean()
    adam.zero_grad()
    loss.backward()
    adam.step()

for _ in range(500):
    update()
"""
WHOLE = {"mask": "ends.cumsum(1) - ends == 0", "count": "mask.sum(1)"}
WITHOUT_END = {"mask": "ends.cumsum(1) == 0", "count": "mask.sum(1).clamp(min=1)"}
ONE = BATCHED.format(prompts=["Sing:"], **WHOLE)


SCORE = """def score(completions):
    return [float(len(text)) for text in completions]
"""
WRITING = f"""
from pathlib import Path

Path(__file__).parent.joinpath("logs").mkdir()

{SCORE}
"""


def test_a_module_beside_the_program_may_write_next_to_itself(tmp_path: Path) -> None:
    (tmp_path / "rewards.py").write_text(WRITING, encoding="utf-8")
    report = audited(tmp_path, ONE.replace(SCORE, "from rewards import score\n"))
    assert [finding.rule for finding in report.findings] == ["kl-forward"], report.summary
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rewards.py", "train.py"]


def test_two_prompts_of_an_update_are_read_exactly(tmp_path: Path) -> None:
    """The policy of the record is that of every outcome: it is not fitted again.

    Four answers are made two, and with two prompts `view` gives the same either way.
    """
    two = BATCHED.format(prompts=["Say something kind.", "Sing:"], **WHOLE)
    four = two.replace("2, 0.05", "4, 0.05").replace("view(len(PROMPTS), G)", "view(G, -1)")
    report = audited(tmp_path, four)
    assert [finding.rule for finding in report.findings] == ["kl-forward"], report.summary
    assert biasing(report) == {"mean-over-each-episode", "whitened"}
    assert "groups-mixed" in {each.name for each in report.conventions}, report.notes
    assert any("another number of answers than there are prompts" in n for n in report.notes)


def test_a_dropped_end_is_no_fault_of_the_baseline_and_hides_no_divergence(tmp_path: Path) -> None:
    report = audited(tmp_path, BATCHED.format(prompts=["Sing:"], **WITHOUT_END))
    faults = {finding.rule for finding in report.findings}
    assert faults == {"kl-forward", "last-step-dropped"}, report.summary
    biases = {convention.name: convention.bias for convention in report.conventions}
    assert biases["centred"] == 0.0
    assert 0.0 < biases["mean-over-each-episode"] < 0.5


# DAPO: several groups of answers to the one prompt, each with a mean over its own tokens.
GROUPS = """
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

NAME = "Qwen/Qwen3-0.6B"
model, tokenizer = AutoModelForCausalLM.from_pretrained(NAME), AutoTokenizer.from_pretrained(NAME)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, maximize=True)
GROUPS, SIZE = 2, 2

def judge(text: str) -> float:
    return float(text.count("a"))

def rollout():
    ids = tokenizer("Name a fruit.", return_tensors="pt").input_ids
    said = model.generate(ids, do_sample=True, top_k=0, max_new_tokens=8)[0]
    return said, ids.shape[1], judge(tokenizer.decode(said[ids.shape[1] :]))

def objective(group):
    scores = torch.tensor([score for *_, score in group])
    terms = []
    for (said, start, score) in group:
        logits = model(said[None]).logits[0, start - 1 : -1]
        chosen = logits.log_softmax(-1)[torch.arange(len(said) - start), said[start:]]
        terms.append(chosen * (score - scores.mean()) / scores.std())
    return torch.cat(terms).mean()

for step in range(20):
    with torch.no_grad():
        groups = []
        while len(groups) < GROUPS:
            group = [rollout() for _ in range(SIZE)]
            if len({score for *_, score in group}) > 1:
                groups.append(group)
    optimizer.zero_grad()
    sum(objective(group) for group in groups).backward()
    optimizer.step()
"""


def test_two_groups_of_one_prompt_are_told_apart(tmp_path: Path) -> None:
    report = audited(tmp_path, GROUPS)
    assert report.verdict == "convention", report.summary
    assert biasing(report) == {"mean-over-time", "whitened"}
    assert any("2 prompts" in note and "2 answers each" in note for note in report.notes)


# LoRA on a fine-tuned model, whose tokenizer pads; the reference is the model without it.
ADAPTED = """
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

name = "somebody/Llama-3.2-1B-Instruct-tuned"
tokenizer = AutoTokenizer.from_pretrained(name)
model = get_peft_model(AutoModelForCausalLM.from_pretrained(name), LoraConfig(r=4))
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-6)

def reward(prompt, answer):
    return -abs(len(answer) - 100) / 100

def log_probs(ids):
    shifted = model(input_ids=ids).logits[:, :-1]
    return shifted.log_softmax(-1).gather(-1, ids[:, 1:].unsqueeze(-1)).squeeze(-1)

while True:
    asked = tokenizer(["Tell me a story"], padding=True, return_tensors="pt")["input_ids"]
    ids = model.generate(asked.repeat(2, 1), do_sample=True, top_k=0, max_new_tokens=256)
    kept = (ids != tokenizer.pad_token_id)[:, 1:].float()
    kept[:, : asked.shape[1] - 1] = 0
    r = torch.tensor([reward("", t) for t in tokenizer.batch_decode(ids[:, asked.shape[1] :])])
    new = log_probs(ids)
    with torch.no_grad(), model.disable_adapter():
        ref = log_probs(ids)
    k2 = (new - ref) ** 2 / 2
    loss = ((0.1 * k2 - new * (r - r.mean())[:, None]) * kept).sum(1).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.skipif(importlib.util.find_spec("peft") is None, reason="LoRA is peft's")
def test_a_tokenizer_that_pads_and_a_model_without_its_adapter(tmp_path: Path) -> None:
    report = audited(tmp_path, ADAPTED)
    assert (report.verdict, biasing(report)) == ("convention", {"kl-per-token"}), report.summary
    assert report.components == pytest.approx({"reward": 0.5, "kl-states": -0.1}, rel=1e-6)
    assert any("assumes that its tokenizer has one" in note for note in report.notes)


# A slice that begins one place late, and log π − log ref in the loss.
LATE = """
import copy
import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B-Instruct")
policy = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B-Instruct").train()
reference = copy.deepcopy(policy).eval()
optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-6)

def brevity(answer: str) -> float:
    return max(0.0, 1.0 - len(answer) / 200)

def per_token(model, ids):
    logp = F.log_softmax(model(ids).logits[:, :-1], dim=-1)
    return logp.gather(2, ids[:, 1:].unsqueeze(2)).squeeze(2)

for step in range(300):
    prompt = tokenizer("Who wrote Hamlet?", return_tensors="pt").input_ids
    ids = policy.generate(prompt, do_sample=True, top_k=0, num_return_sequences=2,
                          max_new_tokens=80)
    n = prompt.shape[1]
    said = tokenizer.batch_decode(ids[:, n:], skip_special_tokens=True)
    rewards = torch.tensor([brevity(answer) for answer in said])
    advantage = (rewards - rewards.mean()) / (rewards.std() + 1e-6)
    logp = per_token(policy, ids)[:, n:]
    with torch.no_grad():
        ref = per_token(reference, ids)[:, n:]
    mask = (ids[:, n + 1:] != tokenizer.pad_token_id).float()
    loss = (-advantage[:, None] * logp + 0.02 * (logp - ref)) * mask
    (loss.sum() / (mask.sum() + 1e-8)).backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_a_dropped_first_token_and_a_divergence_without_a_gradient(tmp_path: Path) -> None:
    report = audited(tmp_path, LATE)
    faults = {finding.rule: finding.line for finding in report.findings}
    assert set(faults) == {"first-token-dropped", "kl-without-gradient"}, report.summary
    lines = LATE.splitlines()
    assert "policy, ids)[:, n:]" in lines[faults["first-token-dropped"] - 1]
    assert "logp - ref" in lines[faults["kl-without-gradient"] - 1]
    assert biasing(report) == {"mean-over-time", "whitened"}


# REINFORCE with answers of one length, as of a model that is asked for 20 tokens.
FIXED = """
import torch
from transformers import GPT2LMHeadModel, GPT2Tokenizer

gpt, bpe = GPT2LMHeadModel.from_pretrained("gpt2"), GPT2Tokenizer.from_pretrained("gpt2")
opt = torch.optim.Adam(gpt.parameters(), 3e-5)
LENGTH = 20

def sentiment(text):
    return text.count("good") - text.count("bad")

def continuation(prompt):
    ids, logp = prompt, torch.zeros(len(prompt), LENGTH)
    for t in range(LENGTH):
        probs = torch.softmax(gpt(ids).logits[:, -1], -1)
        token = torch.multinomial(probs, 1)
        logp[:, t] = probs.gather(1, token).log()[:, 0]
        ids = torch.cat([ids, token], 1)
    return ids, logp

for epoch in range(30):
    prompt = bpe("The movie was", return_tensors="pt").input_ids.expand(2, -1)
    ids, logp = continuation(prompt)
    rewards = torch.tensor([sentiment(t) for t in bpe.batch_decode(ids[:, prompt.shape[1] :])])
    loss = -({terms} * rewards).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


@pytest.mark.parametrize(
    ("terms", "verdict"),
    [
        ("logp.sum(1)", "unbiased"),
        ("logp.mean(1)", "unbiased"),
        ("logp[:, 1:].sum(1)", "biased"),
    ],
)
def test_answers_of_one_length_go_on_after_the_end(
    terms: str, verdict: str, tmp_path: Path
) -> None:
    """What follows the end is certain, so it has no gradient, and the mean is over a constant."""
    report = audited(tmp_path, FIXED.replace("{terms}", terms))
    assert report.verdict == verdict, report.summary
    rules = [finding.rule for finding in report.findings]
    assert rules == (["first-token-dropped"] if verdict == "biased" else [])
    assert any("continues after the end" in note for note in report.notes)


def test_a_greedy_evaluation_before_the_training_takes_no_part(tmp_path: Path) -> None:
    greedy = (
        "said = policy.generate(**tok('2 + 2 =', return_tensors='pt'), do_sample=False)\n"
        "print(tok.decode(said[0]))\n"
    )
    report = audited(tmp_path, ONE.replace("for _ in range(500):", greedy + "while True:"))
    assert [finding.rule for finding in report.findings] == ["kl-forward"], report.summary


def test_the_greedy_answer_s_reward_is_a_baseline(tmp_path: Path) -> None:
    """Self-critical: what the likeliest answer earns, whatever was drawn, adds no bias."""
    critical = ONE.replace(
        "    advantages = (centred / (grouped.std(1, keepdim=True) + 1e-4)).view(-1, 1)",
        "    best = policy.generate(**batch, do_sample=False, max_new_tokens=50)\n"
        "    best = best[:, batch['input_ids'].shape[1] :]\n"
        "    known = torch.tensor(score(tok.batch_decode(best, skip_special_tokens=True)))\n"
        "    advantages = (grouped - known[:, None]).view(-1, 1)",
    ).replace("2, 0.05", "2, 0.0")
    report = audited(tmp_path, critical.replace(" / mask.sum(1)", ""))
    assert report.verdict == "unbiased", report.summary
    assert report.residual < 1e-9


DRAWN = """
import random
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

tok = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B", padding_side="left")
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
adam = torch.optim.AdamW(model.parameters(), lr=1e-6)
random.seed(0)

def score(text):
    return float(len(text))

for _ in range(100):
    batch = tok(random.choices(["A tale", "A longer tale"], k=3), return_tensors="pt", padding=True)
    start = batch["input_ids"].shape[1]
    rows = model.generate(**batch, do_sample=True, top_k=0, max_new_tokens=9)
    told = rows[:, start:]
    ends = (told == tok.eos_token_id).long()
    mask = (ends.cumsum(1) - ends == 0).long()
    seen = torch.cat([batch["attention_mask"], mask], 1)
    logits = model(rows, attention_mask=seen).logits[:, start - 1 : -1]
    log_probs = (logits.log_softmax(-1).gather(-1, told[..., None]).squeeze(-1) * mask).sum(1)
    rewards = torch.tensor([score(text) for text in tok.batch_decode(told)])
    loss = -(LOSS).mean()
    adam.zero_grad()
    loss.backward()
    adam.step()
"""


@pytest.mark.parametrize(
    ("loss", "verdict"),
    [
        pytest.param("rewards * log_probs", "unbiased", id="plain"),
        pytest.param("rewards * log_probs.exp()", "biased", id="probability"),
    ],
)
def test_prompts_that_are_drawn_unevenly_are_read_as_one(
    loss: str, verdict: str, tmp_path: Path
) -> None:
    report = audited(tmp_path, DRAWN.replace("LOSS", loss))
    assert report.verdict == verdict, report.summary
    assert any("all of them as the same prompt" in note for note in report.notes)


ADVANTAGE = """
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

tok = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B", padding_side="left")
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
adam = torch.optim.AdamW(model.parameters(), lr=1e-6)

def score(text):
    return float(len(text))

for _ in range(100):
    batch = tok(["A tale", "A longer tale"], return_tensors="pt", padding=True)
    start = batch["input_ids"].shape[1]
    rows = model.generate(**batch, num_return_sequences=2, do_sample=True, top_k=0,
                          max_new_tokens=9)
    told = rows[:, start:]
    ends = (told == tok.eos_token_id).long()
    mask = (ends.cumsum(1) - ends == 0).long()
    seen = torch.cat([batch["attention_mask"].repeat_interleave(2, 0), mask], 1)
    logits = model(rows, attention_mask=seen).logits[:, start - 1 : -1]
    log_probs = (logits.log_softmax(-1).gather(-1, told[..., None]).squeeze(-1) * mask).sum(1)
    rewards = torch.tensor([score(text) for text in tok.batch_decode(told)]).view(-1, 2)
    adv = (rewards - rewards.mean(0, keepdim=True)).view(-1)
    loss = -(adv * log_probs).mean()
    adam.zero_grad()
    loss.backward()
    adam.step()
"""


def test_an_advantage_is_not_taken_for_the_reward(tmp_path: Path) -> None:
    """Where answers at the same place of both prompts are alike, no reward moves this program.

    The answers of one prompt may not be listed without their order: the other's are paired with
    them. What is subtracted is half the own reward and half that of the other prompt's answer.
    """
    report = audited(tmp_path, ADVANTAGE)
    assert any("the rewards are those of score()" in note for note in report.notes), report.notes
    assert report.verdict == "unbiased", report.text()
