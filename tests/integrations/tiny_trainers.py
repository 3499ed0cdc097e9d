"""TRL's trainers of a tiny random model, as they are and with the loss in one pass."""

from __future__ import annotations

from typing import Any

import datasets
import torch
import transformers
import trl

from eligibility.audit.trainers.tiny import make_tokenizer
from eligibility.integrations.trl import LinearLoss

ROWS, WIDTH, VOCABULARY = 4, 6, 53
KINDS = {"GRPO": (trl.GRPOConfig, trl.GRPOTrainer), "RLOO": (trl.RLOOConfig, trl.RLOOTrainer)}


class LinearGRPO(LinearLoss, trl.GRPOTrainer):
    pass


class LinearRLOO(LinearLoss, trl.RLOOTrainer):
    pass


LINEAR = {"GRPO": LinearGRPO, "RLOO": LinearRLOO}


def tiny(**changes: Any) -> Any:
    settings = {
        "vocab_size": VOCABULARY,
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "initializer_range": 0.5,
        "eos_token_id": 0,
        "pad_token_id": 0,
        "bos_token_id": None,
    } | changes
    torch.manual_seed(5)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**settings))


def made(
    trainer: Any,
    configuration: Any,
    folder: Any,
    model: Any = None,
    peft: Any = None,
    **options: Any,
) -> Any:
    fixed = {
        "output_dir": str(folder),
        "per_device_train_batch_size": ROWS,
        "num_generations": 2,
        "max_completion_length": WIDTH,
        "use_cpu": True,
        "bf16": False,
        "report_to": "none",
        "save_strategy": "no",
        "logging_strategy": "no",
        "disable_tqdm": True,
        "optim": "sgd",
    }
    if model is None:
        model = str(folder / "model")  # a reference is loaded by the name of the policy
        tiny().save_pretrained(model)
    return trainer(
        model=model,
        reward_funcs=lambda completions, **_: [float(len(c) % 3) for c in completions],
        args=configuration(**(fixed | options)),
        train_dataset=datasets.Dataset.from_dict({"prompt": ["b", "bab"] * 8}),
        processing_class=make_tokenizer(),
        peft_config=peft,
    )
