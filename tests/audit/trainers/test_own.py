"""Training loops that people write by hand on transformers, run as they are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("transformers")
pytest.importorskip("datasets")

from tests.audit.loop_runs import audited, biasing

HEAD = """
import copy
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("{name}", torch_dtype=torch.bfloat16).to("cuda")
tokenizer = AutoTokenizer.from_pretrained("{name}")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
"""
REWARD = """
def reward_fn(text):
    return 1.0 if "yes" in text else 0.0
"""
# A minimal GRPO: groups, the old log-probabilities, clipping, the mean over each answer.
GRPO = (
    HEAD.format(name="Qwen/Qwen2.5-0.5B")
    + REWARD
    + """
G, EPSILON = {group}, 0.2

def token_log_probs(ids, mask):
    logits = model(input_ids=ids, attention_mask=mask).logits[:, :-1].float()
    return torch.gather(logits.log_softmax(-1), 2, ids[:, 1:].unsqueeze(-1)).squeeze(-1)

for step in range(100):
    inputs = tokenizer(["Is water wet?"], return_tensors="pt")
    with torch.no_grad():
        ids = model.generate(**inputs, max_new_tokens=64, do_sample=True, top_k=0,
                             num_return_sequences=G)
    start, ids = inputs["input_ids"].shape[1], ids.clone()
    answers = ids[:, start:]
    texts = tokenizer.batch_decode(answers, skip_special_tokens=True)
    rewards = torch.tensor([reward_fn(text) for text in texts], dtype=torch.float32)
    advantages = {advantages}
    mask = (answers != tokenizer.pad_token_id).float()
    seen = torch.cat([torch.ones(G, start), mask], 1).long()
    with torch.no_grad():
        old = token_log_probs(ids, seen){columns}
    new = token_log_probs(ids, seen){columns}
    ratio = (new - old).exp()
    clipped = ratio.clamp(1 - EPSILON, 1 + EPSILON)
    gain = torch.min(ratio * advantages[:, None], clipped * advantages[:, None]){masked}
    loss = -{mean}
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
"""
)
_INFERENCE = "with torch.inference_mode():\n        ids ="
GRPO_PARTS = {
    "group": "2",
    "advantages": "rewards - rewards.mean()",
    "columns": "[:, start - 1:]",
    "masked": " * mask",
    "mean": "gain.sum(1).mean()",
}
# REINFORCE, one answer at a time, token by token, with the batch's mean as baseline.
BY_TOKEN = (
    HEAD.format(name="gpt2")
    + REWARD
    + """
def sample(prompt, temperature=1.0):
    ids = tokenizer(prompt, return_tensors="pt").input_ids
    start, log_probs = ids.shape[1], []
    while ids.shape[1] - start < 40:
        logits = model(ids).logits[:, -1]
        dist = torch.distributions.Categorical(logits={drawn})
        token = dist.sample()
        log_probs.append({scored})
        ids = torch.cat([ids, token[:, None]], dim=1)
        if token.item() == tokenizer.eos_token_id:
            break
    return tokenizer.decode(ids[0, start:], skip_special_tokens=True), torch.stack(log_probs)

for episode in range(100):
    samples = [sample("Tell me:") for _ in range(2)]
    rewards = [reward_fn(text) for text, _ in samples]
    baseline = sum(rewards) / len(rewards)
    losses = [{sign}log_probs.sum() * (r - baseline) for (_, log_probs), r in zip(samples, rewards)]
    optimizer.zero_grad()
    torch.stack(losses).mean().backward()
    optimizer.step()
"""
)
BY_TOKEN_PARTS = {"drawn": "logits", "scored": "dist.log_prob(token)", "sign": "-"}
# RLOO with the divergence in the reward, a frozen copy as reference, rewards of a loop in the text.
RLOO = (
    HEAD.format(name="Qwen/Qwen2.5-0.5B")
    + """
reference = copy.deepcopy(model).eval()
BETA, K = 0.1, 2

def log_probs_of(policy, ids, mask):
    logits = policy(ids, attention_mask=mask).logits[:, :-1]
    return logits.log_softmax(-1).gather(2, ids[:, 1:, None])[..., 0]

prompt = tokenizer("Write:", return_tensors="pt")["input_ids"].repeat(K, 1)
while True:
    out = model.generate(prompt, do_sample=True, top_k=0, temperature=1.0, max_new_tokens=32)
    start = prompt.shape[1]
    scores = torch.zeros(K)
    for i, text in enumerate(tokenizer.batch_decode(out[:, start:], skip_special_tokens=True)):
        score = 0
        if "." in text:
            score = 1.0
        scores[i] = score
    mask = (out != tokenizer.pad_token_id).long()
    answered = mask[:, start:]
    log_probs = (log_probs_of(model, out, mask)[:, start - 1 :] * answered).sum(1)
    with torch.no_grad():
        ref = (log_probs_of(reference, out, mask)[:, start - 1 :] * answered).sum(1)
    returns = scores - BETA * {kl}
    advantage = returns - (returns.sum() - returns) / (K - 1)
    loss = -(advantage * log_probs).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
)
# The mask is made by the token for padding, which is the one that ends an answer.
PADDED = GRPO.replace("Qwen/Qwen2.5-0.5B", "gpt2").replace(
    "optimizer =", "tokenizer.pad_token = tokenizer.eos_token\noptimizer ="
)


def test_a_minimal_grpo_without_divisors_is_the_policy_gradient(tmp_path: Path) -> None:
    """(G−1)/G, as the group's mean contains one's own reward; all in double precision."""
    report = audited(tmp_path, GRPO.format(**GRPO_PARTS))
    assert report.verdict == "unbiased", report.summary
    assert report.residual < 1e-12
    assert report.components["reward"] == pytest.approx(0.5, rel=1e-10)
    assert not report.findings
    assert any("reward_fn()" in note for note in report.notes)


GRPO_VARIANTS = {
    "mean-over-each-episode": {"mean": "(gain.sum(1) / mask.sum(1)).mean()"},
    "mean-over-time": {"mean": "gain.sum() / mask.sum()"},
    "padded-width": {"mean": "gain.mean()"},
    "whitened": {"advantages": "(rewards - rewards.mean()) / (rewards.std() + 1e-4)"},
}


@pytest.mark.parametrize("name", GRPO_VARIANTS)
def test_what_a_minimal_grpo_divides_by_is_named(name: str, tmp_path: Path) -> None:
    program = GRPO.format(**(GRPO_PARTS | GRPO_VARIANTS[name]))
    report = audited(tmp_path, program)
    assert (report.verdict, biasing(report)) == ("convention", {name}), report.summary
    [line] = [convention.line for convention in report.conventions if convention.bias]
    assert line == _line(program, "advantages = " if name == "whitened" else "loss = ")


KL = """    with torch.no_grad():
        known = reference_log_probs(ids, seen)
    {kl}
    gain = torch.min("""
WITH_KL = (
    GRPO.format(**(GRPO_PARTS | {"masked": " * mask - 0.1 * kl * mask"}))
    .replace("G, EPSILON", "reference = copy.deepcopy(model).eval()\nG, EPSILON")
    .replace(
        "for step in",
        """def reference_log_probs(ids, mask):
    logits = reference(input_ids=ids, attention_mask=mask).logits[:, :-1]
    return torch.gather(logits.log_softmax(-1), 2, ids[:, 1:].unsqueeze(-1)).squeeze(-1)

for step in""",
    )
    .replace("    gain = torch.min(", KL)
    .replace("(ids, seen)\n    {kl}", "(ids, seen)[:, start - 1:]\n    {kl}")
)
# With each rule: the program, and how the line begins that somebody who reads it would point at.
FAULTY = {
    "prompt-scored": (
        GRPO.format(**(GRPO_PARTS | {"columns": "", "masked": "", "advantages": "rewards"})),
        "loss = ",
    ),
    "padding-counted": (GRPO.format(**(GRPO_PARTS | {"masked": ""})), "loss = "),
    "first-token-dropped": (
        GRPO.format(**(GRPO_PARTS | {"columns": "[:, start:]", "masked": " * mask[:, 1:]"})),
        "new = ",
    ),
    "last-step-dropped": (PADDED.format(**GRPO_PARTS), "mask = "),
    "wrong-sign": (BY_TOKEN.format(**(BY_TOKEN_PARTS | {"sign": ""})), "losses = "),
    "probability-not-log-probability": (
        BY_TOKEN.format(**(BY_TOKEN_PARTS | {"scored": "dist.log_prob(token).exp()"})),
        "log_probs.append",
    ),
    "behaviour-not-scored": (
        BY_TOKEN.format(
            **(
                BY_TOKEN_PARTS
                | {"drawn": "logits / 0.6", "scored": "logits.log_softmax(-1)[0, token.item()]"}
            )
        ),
        "log_probs.append",
    ),
    "advantage-not-detached": (RLOO.format(kl="(log_probs - ref)"), "returns = "),
    "kl-sign": (
        WITH_KL.replace("{kl}", "kl = -0.5 * (new - known) ** 2"),
        "gain = ",
    ),
    "kl-forward": (
        WITH_KL.replace("{kl}", "kl = (known - new).exp() - (known - new) - 1"),
        "kl = ",
    ),
    "kl-without-gradient": (
        WITH_KL.replace("{kl}", "kl = ((known - new).exp() - (known - new) - 1).detach()"),
        "kl = ",
    ),
}


@pytest.mark.parametrize("rule", FAULTY)
def test_a_fault_of_a_loop_by_hand_is_named_at_the_line_that_makes_it(
    rule: str, tmp_path: Path
) -> None:
    program, begins = FAULTY[rule]
    report = audited(tmp_path, program)
    found = {finding.rule: finding for finding in report.findings}
    assert rule in found, report.summary
    assert report.verdict in ("biased", "wrong-sign", "unexplained")
    assert Path(found[rule].file).name == "train.py"
    assert abs(found[rule].line - _line(program, begins)) <= 1


def _line(program: str, begins: str) -> int:
    lines = enumerate(program.splitlines(), 1)
    return next(number for number, line in lines if line.strip().startswith(begins))


@pytest.mark.parametrize("temperature", ["", " / 0.6"])
def test_reinforce_token_by_token_is_the_policy_gradient(temperature: str, tmp_path: Path) -> None:
    """Also at a temperature that is scored as it is drawn with."""
    report = audited(
        tmp_path, BY_TOKEN.format(**(BY_TOKEN_PARTS | {"drawn": f"logits{temperature}"}))
    )
    assert report.verdict == "unbiased", report.summary
    assert report.components["reward"] == pytest.approx(0.5, rel=1e-8)


def test_rloo_with_the_divergence_in_the_reward_is_exact_for_both(tmp_path: Path) -> None:
    """Its rewards are no function's: they are numbers that the loop puts into a tensor."""
    report = audited(tmp_path, RLOO.format(kl="(log_probs - ref).detach()"))
    assert (report.verdict, biasing(report)) == ("convention", {"kl-in-reward"}), report.summary
    assert report.components == pytest.approx({"reward": 1.0, "kl-reverse": -0.1}, rel=1e-8)
    assert any("puts into a tensor" in note for note in report.notes)


def test_answers_may_be_sampled_in_inference_mode_and_data_loaded_by_processes(
    tmp_path: Path,
) -> None:
    text = GRPO.format(**GRPO_PARTS).replace("with torch.no_grad():\n        ids =", _INFERENCE)
    assert _INFERENCE in text
    loader = "loader = torch.utils.data.DataLoader(range(4), num_workers=2, prefetch_factor=4)\n"
    text = text.replace("for step in range(100):", f"{loader}for step in loader:")
    report = audited(tmp_path, text)
    assert report.verdict == "unbiased", report.text()


@pytest.mark.parametrize("beside", [False, True])
def test_a_group_that_is_too_large_is_made_small(beside: bool, tmp_path: Path) -> None:
    """With 64 answers to a prompt there are too many groups; 2 in their place are enough."""
    text = GRPO.format(**(GRPO_PARTS | {"group": "64"}))
    line = next(n for n, text in enumerate(GRPO.splitlines(), 1) if text.startswith("G, EPS"))
    where = f"train.py:{line}"
    if beside:
        (tmp_path / "grpo.yaml").write_text("lr: 1e-4\ngroup: 64\n", encoding="utf-8")
        read = "int(open('grpo.yaml').read().split()[-1])"
        text, where = text.replace("64", read), "grpo.yaml:2"
    report = audited(tmp_path, text)
    assert report.verdict == "unbiased", report.summary
    assert f"reduced: 64 is 2 at {where}" in report.notes


PLAIN = GRPO.format(**GRPO_PARTS)
# An evaluation before the training, whose answers teach nothing; a tracker that is not installed.
EVALUATED = PLAIN.replace(
    "for step in range(100):",
    """
import swanlab

def evaluate(texts):
    for text in texts:
        asked = tokenizer(text, return_tensors="pt")
        swanlab.log({"said": tokenizer.decode(model.generate(**asked, temperature=0.3)[0])})

evaluate(["One?", "And two?", "Three then?"])
for step in range(100):""",
)
# Groups whose rewards are all the same are drawn again, and no answer of the probe's has a "yes".
DROPPED = PLAIN.replace(
    "    advantages =", "    if rewards.std() == 0:\n        continue\n    advantages ="
)
# Each answer in a step of its own, and all of them twice.
TWICE = (
    PLAIN[: PLAIN.index("    new = ")]
    + """
    for row in [0, 1, 0, 1]:
        one = slice(row, row + 1)
        new = token_log_probs(ids[one], seen[one])[:, start - 1:]
        ratio = (new - {old}).exp()
        loss = -(ratio * advantages[one, None] * mask[one]).sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
)


@pytest.mark.parametrize("program", [EVALUATED, DROPPED])
def test_what_a_loop_samples_and_does_not_train_on_is_left_out(
    program: str, tmp_path: Path
) -> None:
    """Answers of an evaluation, and groups in which the rewards do not differ."""
    report = audited(tmp_path, program)
    assert report.verdict == "unbiased", report.summary
    assert report.residual < 1e-12


CLIPPED = TWICE.replace(
    "(ratio * advantages[one, None] *",
    "(torch.min(ratio * advantages[one, None], ratio.clamp(0.8, 1.2) * advantages[one, None]) *",
)


@pytest.mark.parametrize(
    ("program", "old", "verdict", "named"),
    [
        (TWICE, "old[one]", "convention", {"token-ratio"}),
        (CLIPPED, "old[one]", "convention", {"token-ratio", "clipped"}),
        (TWICE, "new.detach()", "biased", set()),
    ],
)
def test_answers_that_are_trained_on_twice_meet_a_later_policy(
    program: str, old: str, verdict: str, named: set[str], tmp_path: Path
) -> None:
    """The second time a ratio of the policy and itself corrects nothing."""
    report = audited(tmp_path, program.replace("{old}", old))
    assert (report.updates, report.verdict) == (2, verdict), report.summary
    assert biasing(report) == named
    assert [finding.rule for finding in report.findings] == (
        ["ratio-always-one"] if verdict == "biased" else []
    )


REFUSED = {
    "`generate` is called without sampling": GRPO.format(**GRPO_PARTS).replace(
        "do_sample=True", "do_sample=False"
    ),
    "`generate` is called without sampling, so no answer has a probability": GRPO.format(
        **(GRPO_PARTS | {"group": "1"})
    ).replace(
        "do_sample=True, top_k=0,\n                             num_return_sequences=G",
        "do_sample=False",
    ),
    "the audit found no reward": GRPO.format(**GRPO_PARTS).replace(
        "torch.tensor([reward_fn(text) for text in texts], dtype=torch.float32)", "torch.ones(G)"
    ),
    "the program makes no trainer of TRL and samples no answers": "import torch",
    "the program samples no answers": HEAD.format(name="gpt2")
    + "loss = model(torch.ones(2, 3).long()).logits.logsumexp(-1).sum()\n"
    "loss.backward()\noptimizer.step()",
    "the program trains on images, and the probe has none; audit its loss with audit_token_loss": (
        HEAD.format(name="gpt2") + 'model.generate(load({"type": "image"}))'
    ),
    "the program gets its rewards from a service (openai), and the audit has no network": (
        HEAD.format(name="gpt2") + "import openai"
    ),
    "the program calls tools while it answers, and the probe has only single answers": (
        HEAD.format(name="gpt2") + "Trainer(model, tools=[print])"
    ),
    "the program builds its Small from a configuration": (
        HEAD.format(name="gpt2") + "from transformers import LlamaConfig, LlamaForCausalLM\n"
        "class Small(LlamaForCausalLM): pass\n"
        "small = LlamaConfig(vocab_size=16, hidden_size=8, num_attention_heads=1)\n"
        "Small(small).generate(torch.ones(2, 3).long())"
    ),
    "the program writes its prompts as numbers of tokens": (
        HEAD.format(name="gpt2")
        + "model.generate(torch.ones(2, 3).long(), do_sample=True, top_k=0)"
    ),
    "the program gives the model token 50256, and the probe's tokenizer has 4 tokens": (
        HEAD.format(name="gpt2") + "model(torch.full((2, 3), 50256))"
    ),
    "the program stopped at": HEAD.format(name="gpt2") + "model.generate(1 / 0)",
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_has_nothing_to_audit_is_told_in_a_sentence(said: str, tmp_path: Path) -> None:
    report = audited(tmp_path, REFUSED[said])
    assert report.verdict == "inconclusive"
    assert report.summary.startswith(said), json.dumps(report.summary)
