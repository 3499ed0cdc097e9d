"""Scripts that train a model with other trainers of TRL before the policy gradient."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("trl")
pytest.importorskip("peft")

from tests.audit.loop_runs import audited

PIPELINE = """
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer

tok = AutoTokenizer.from_pretrained("HuggingFaceTB/SmolLM2-135M")
model = AutoModelForCausalLM.from_pretrained("HuggingFaceTB/SmolLM2-135M")
rows = load_dataset("openai/gsm8k", "main", split="train")
first = SFTTrainer(
    model=model,
    train_dataset=rows,
    peft_config=LoraConfig(r=8, target_modules=["q_proj"]),
    args=SFTConfig(output_dir="/content/sft", bf16=True, num_train_epochs=3),
)
first.train()
first.save_model()
merged = first.model.merge_and_unload()
merged.save_pretrained("/content/sft")
tok.save_pretrained("/content/sft")

def length(completions, **columns):
    return [float(len(each)) for each in completions]

policy = AutoModelForCausalLM.from_pretrained("/content/sft")
settings = GRPOConfig(output_dir="/content/grpo", bf16=True, num_generations=2, beta=0.0)
trainer = GRPOTrainer(model=policy, reward_funcs=length, args=settings, train_dataset=rows)
trainer.train()
"""


def test_supervised_training_before_grpo_is_passed_over(tmp_path: Path) -> None:
    report = audited(tmp_path, PIPELINE)
    assert report.verdict == "convention", report.summary
    assert not report.findings
    assert "SFTTrainer is passed over: the policy is the probe's" in report.notes
