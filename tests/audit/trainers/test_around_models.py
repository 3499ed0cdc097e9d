"""Loops around a model: adapters, critics, trainers of other libraries, classifiers of texts."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("transformers")
pytest.importorskip("datasets")

from tests.audit.loop_runs import audited

# Leave-one-out on two answers, summed over their tokens: the policy gradient exactly.
LOOP = """
import torch
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer
{imports}
tok = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B")
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
{made}
adam = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-6)

def score(texts):
    return {score}

question = tok("Name a fruit.", return_tensors="pt").input_ids
start = question.shape[1]
for _ in range(100):
    with torch.no_grad():
        ids = model.generate(question, do_sample=True, top_k=0, num_return_sequences={group},
                             max_new_tokens=9, temperature={temperature},
                             pad_token_id=tok.pad_token_id)
    said = ids[:, start:]
    mask = (said != tok.pad_token_id).double()
    rewards = torch.tensor(score(tok.batch_decode(said, skip_special_tokens=True)))
    advantages = (rewards - rewards.flip(0))[:, None]
    logits = model(ids).logits[:, :-1] / {scored}
    log_probs = logits.log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1)
    {loss}
    adam.zero_grad()
    loss.backward()
    adam.step()
"""
PARTS = {
    "imports": "",
    "made": "",
    "score": "[float(len(text)) for text in texts]",
    "group": "2",
    "temperature": "1.0",
    "scored": "1.0",
    "loss": "loss = -(log_probs[:, start - 1:] * mask * advantages).sum(1).mean()",
}

LORA = (
    'layers = ["q_proj", "v_proj", "o_proj", "down_proj"]\n'
    "model = get_peft_model(model, LoraConfig(r=16, target_modules=layers, lora_dropout=0.1))"
)
CRITIC = (
    'critic = AutoModel.from_pretrained("Qwen/Qwen2.5-0.5B")\nhead = torch.nn.Linear(8, 1)',
    "values = head(critic(ids).last_hidden_state[:, start - 1:-1]).squeeze(-1)\n"
    "    gain = rewards[:, None] - values.detach()\n"
    "    loss = -(log_probs[:, start - 1:] * mask * gain).sum(1).mean()",
)
VALUE_HEAD = (
    "head = torch.nn.Linear(8, 1)",
    "hidden = model(ids, output_hidden_states=True)\n"
    "    values = head(hidden.hidden_states[-1])[:, start - 1:-1].squeeze(-1)\n"
    "    gain = rewards[:, None] - values\n"
    "    log_probs = hidden.logits[:, :-1].log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]\n"
    "    policy = -(log_probs[:, start - 1:] * mask * gain.detach()).sum(1).mean()\n"
    "    loss = policy + 0.5 * (gain ** 2 * mask).sum(1).mean()",
)
PIPELINE = (
    'judge = pipeline("sentiment-analysis", model="lvwerra/distilbert-imdb", top_k=None)',
    '[next(e["score"] for e in each if e["label"] == "POSITIVE") for each in judge(texts)]',
)
WHOLE = "seen = torch.cat([torch.ones(2, start - 1), mask], 1)\n    "
EXACT = {
    "a temperature of generate that is scored": {"temperature": "0.7", "scored": "0.7"},
    "adapters with dropout, of layers that write to the features": {
        "imports": "from peft import LoraConfig, get_peft_model",
        "made": LORA,
    },
    "a critic of its own": {"made": CRITIC[0], "loss": CRITIC[1]},
    "a critic on the policy's features": {"made": VALUE_HEAD[0], "loss": VALUE_HEAD[1]},
    "a model that is made of a configuration": {
        "made": "from transformers import LlamaConfig, LlamaForCausalLM\n"
        "model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tok), num_hidden_layers=2))"
    },
    "single precision set by a library": {"made": "torch.set_default_dtype(torch.float32)"},
    "a pipeline that judges": {
        "imports": "from transformers import pipeline",
        "made": PIPELINE[0],
        "score": PIPELINE[1],
    },
    "one process for each device, started alone": {
        "imports": "import torch.distributed as dist\n"
        "from torch.nn.parallel import DistributedDataParallel as DDP",
        "made": 'dist.init_process_group(backend="nccl")\n'
        "torch.cuda.set_device(dist.get_rank())\n"
        "model = DDP(model.to(dist.get_rank()), device_ids=[0], output_device=0)\n"
        "model.generate = lambda ids, **options: model.module.generate(ids.to(0), **options)",
        "loss": "loss = -(log_probs[:, start - 1:] * mask * advantages).sum(1).mean()\n"
        "    dist.all_reduce(mean := loss.detach().clone())\n"
        "    assert mean == loss",
    },
    "a text that is cut at the tokenizer's longest": {
        "made": "assert len(tok(8 * 'a b', truncation=True, "
        "max_length=tok.model_max_length // 2).input_ids)"
    },
    "a prompt whose score has weights that add up to 0": {
        "loss": WHOLE + "loss = -(log_probs * seen * advantages).sum(1).mean()"
    },
}


@pytest.mark.parametrize("name", EXACT)
def test_the_policy_gradient_is_recognised(name: str, tmp_path: Path) -> None:
    if "peft" in EXACT[name].get("imports", ""):
        pytest.importorskip("peft")
    report = audited(tmp_path, LOOP.format(**(PARTS | EXACT[name])))
    assert (report.verdict, report.findings) == ("unbiased", ()), report.summary


@pytest.mark.parametrize("critic", [CRITIC, VALUE_HEAD])
def test_an_advantage_that_carries_a_gradient_to_the_critic_is_a_fault(
    critic: tuple[str, str], tmp_path: Path
) -> None:
    """The expected gradient at the logits is exact: only what else it moves is wrong."""
    made, loss = critic
    script = LOOP.format(**(PARTS | {"made": made, "loss": loss.replace(".detach()", "")}))
    report = audited(tmp_path, script)
    assert [each.rule for each in report.findings] == ["advantage-not-detached"], report.summary
    assert "gain = " in script.splitlines()[report.findings[0].line - 1]
    assert report.verdict == "biased"


@pytest.mark.parametrize(("drawn", "scored"), [("1.0", "0.7"), ("0.7", "1.0"), ("0.7", "0.5")])
def test_another_temperature_in_drawing_than_in_scoring_is_named(
    drawn: str, scored: str, tmp_path: Path
) -> None:
    parts = PARTS | {"temperature": drawn, "scored": scored}
    report = audited(tmp_path, LOOP.format(**parts))
    assert [finding.rule for finding in report.findings] == ["behaviour-not-scored"], report.text()


# Each place in a group has a weight of its own, so that every order of the answers is run.
TWICE = """old = log_probs.detach()[:, start - 1:]
    weights = torch.arange(1.0, 5.0)[:, None] * mask * (rewards - rewards.mean())[:, None]
    for _ in range(2):
        logits = model(ids).logits[:, start - 1:-1]
        log_probs = logits.log_softmax(-1).gather(-1, said[..., None]).squeeze(-1)
        loss = -((log_probs - old).exp() * weights).sum(1).mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
"""


def test_shorter_answers_are_tried_where_there_are_too_many_orders(tmp_path: Path) -> None:
    report = audited(tmp_path, LOOP.format(**(PARTS | {"group": "4", "loss": TWICE})))
    assert report.updates == 2, report.summary
    assert any("answers of at most 2" in note for note in report.notes)


def test_a_trainer_of_transformers_may_sample_in_its_loss(tmp_path: Path) -> None:
    """It drops the columns of data that a model's forward does not name."""
    pytest.importorskip("accelerate")
    report = audited(
        tmp_path,
        """
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

tok = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B")
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")

def score(texts):
    return [float(len(text)) for text in texts]

class Reinforce(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        asked = inputs["input_ids"]
        with torch.no_grad():
            ids = model.generate(asked, do_sample=True, top_k=0, num_return_sequences=2,
                                 max_new_tokens=9)
        said = ids[:, asked.shape[1]:]
        mask = (said != tok.pad_token_id).double()
        rewards = torch.tensor(score(tok.batch_decode(said, skip_special_tokens=True)))
        logits = model(ids).logits[:, asked.shape[1] - 1:-1]
        log_probs = logits.log_softmax(-1).gather(-1, said[..., None]).squeeze(-1)
        return -((log_probs * mask).sum(1) * (rewards - rewards.mean())).mean()

rows = Dataset.from_dict({"text": ["Is water wet?"] * 8})
rows = rows.map(lambda row: tok(row["text"]), remove_columns=["text"])
arguments = TrainingArguments("out", per_device_train_batch_size=1, report_to="none")
collate = lambda listed: tok.pad(listed, return_tensors="pt")
Reinforce(model=model, args=arguments, train_dataset=rows, data_collator=collate).train()
""",
    )
    assert (report.verdict, report.findings) == ("unbiased", ()), report.summary


# The reference is the policy without its adapter, and k1 to it is in the loss.
ADAPTED = """
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

tok = AutoTokenizer.from_pretrained("gpt2")
adapter = LoraConfig(r=8, target_modules=["q_proj", "v_proj"])
model = get_peft_model(AutoModelForCausalLM.from_pretrained("gpt2"), adapter)
adam = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-5)

def joy(texts):
    return [float(len(text)) for text in texts]

def log_probs(ids, start):
    logits = model(input_ids=ids).logits[:, start - 1 : -1]
    return logits.log_softmax(-1).gather(2, ids[:, start:, None]).squeeze(2)

for step in range(100):
    prompt = tok("Once upon a time", return_tensors="pt").input_ids
    start = prompt.shape[1]
    with torch.no_grad():
        ids = model.generate(input_ids=prompt, do_sample=True, top_k=0, num_return_sequences=2)
        with model.disable_adapter():
            reference = log_probs(ids, start)
    answers = ids[:, start:]
    mask = ((answers == tok.eos_token_id).cumsum(1).cumsum(1) <= 1).double()
    rewards = torch.tensor(joy(tok.batch_decode(answers, skip_special_tokens=True)))
    now = log_probs(ids, start)
    gain = now * (rewards - rewards.flip(0))[:, None] - 0.04 * (now - reference)
    loss = -(gain * mask).sum(1).mean()
    adam.zero_grad()
    loss.backward()
    adam.step()
"""


def test_a_divergence_to_the_model_without_its_adapter_has_no_gradient(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    report = audited(tmp_path, ADAPTED)
    assert [finding.rule for finding in report.findings] == ["kl-without-gradient"], report.summary
