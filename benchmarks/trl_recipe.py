"""A step of GRPO in TRL, against the same step with `eligibility.integrations.trl.LinearLoss`.

    OMP_NUM_THREADS=1 taskset -c 1 python -m benchmarks.trl_recipe

It writes ``benchmarks/results/trl_recipe.json`` and prints the table of
``docs/how_to/train_with_trl.md``; about 3 minutes on one core. Each trainer has a process of its
own: one layer before a vocabulary of 32768, ``_compute_loss`` and its backward pass in float32.
Liger takes part if it is installed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from eligibility.bench.machine import describe_machine
from eligibility.bench.measurement import resident_growth

RESULTS = Path(__file__).parent / "results/trl_recipe.json"
VOCABULARY, FEATURES, ROWS, PROMPT, WIDTH = 32768, 512, 8, 8, 128
STEPS = 5
BATCHES = {
    "full": "1024 tokens, every advantage differs from 0",
    "mixed": "answers of 16 to 128 tokens, half of the groups with equal rewards",
}
NAMES = {
    "logits": "logits whole, as TRL before its fused head",
    "trl": "TRL 1.16's fused head",
    "liger": "Liger's fused GRPO loss, by hand",
    "logged": "`LinearLoss`, a step that is logged",
    "linear": "`LinearLoss`, the others",
}


def trainers() -> dict[str, type]:
    """Of each name, made when TRL is there."""
    import trl

    from eligibility.integrations.trl import LinearLoss

    class WholeLogits(trl.GRPOTrainer):
        def _get_per_token_logps_and_entropies(
            self, model: Any, input_ids: Tensor, attention_mask: Tensor, keep: int, **options: Any
        ) -> Any:
            out = model(input_ids=input_ids, attention_mask=attention_mask, logits_to_keep=keep + 1)
            every = out.logits[:, :-1].log_softmax(-1)
            chosen = every.gather(-1, input_ids[:, -keep:, None])[..., 0]
            with torch.no_grad():
                entropy = -(every.exp() * every).sum(-1)
            return chosen, entropy, None

    class Liger(trl.GRPOTrainer):
        def _compute_loss(self, model: Any, inputs: Any) -> Tensor:
            from liger_kernel.chunked_loss import LigerFusedLinearGRPOLoss

            ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
            mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
            width = inputs["completion_ids"].shape[1]
            hidden = model.model(input_ids=ids, attention_mask=mask, use_cache=False)[0]
            loss = LigerFusedLinearGRPOLoss(beta=0.0, use_ref_model=False, loss_type="dapo")
            return loss(
                hidden[:, -width - 1 : -1],
                model.lm_head.weight,
                inputs["completion_ids"],
                inputs["completion_mask"],
                inputs["advantages"],
                num_items_in_batch=inputs["num_items_in_batch"],
            )[0]

    class Linear(LinearLoss, trl.GRPOTrainer):
        pass

    return {
        "logits": WholeLogits,
        "trl": trl.GRPOTrainer,
        "liger": Liger,
        "logged": Linear,
        "linear": Linear,
    }


def built(name: str, folder: str) -> Any:
    """A trainer of a Llama of one layer with random weights."""
    import datasets
    import transformers
    import trl

    from eligibility.audit.trainers.tiny import make_tokenizer

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=FEATURES,
        intermediate_size=FEATURES,
        num_hidden_layers=1,
        num_attention_heads=8,
        eos_token_id=0,
        pad_token_id=0,
        bos_token_id=None,
    )
    trainer = trainers()[name](
        model=transformers.LlamaForCausalLM(config),
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=trl.GRPOConfig(
            output_dir=folder,
            per_device_train_batch_size=ROWS,
            num_generations=2,
            max_completion_length=WIDTH,
            use_cpu=True,
            bf16=False,
            report_to="none",
            logging_strategy="steps" if name == "logged" else "no",
        ),
        train_dataset=datasets.Dataset.from_dict({"prompt": ["b"] * ROWS}),
        processing_class=make_tokenizer(),
    )
    trainer.state.logging_steps = 1
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.train()
    return trainer


def batch(kind: str) -> dict[str, Tensor]:
    """What `_compute_loss` is given."""
    generator = torch.Generator().manual_seed(0)
    lengths, advantages = torch.full((ROWS,), WIDTH), torch.tensor([1.0, -1.0] * (ROWS // 2))
    if kind == "mixed":
        lengths = torch.linspace(16, WIDTH, ROWS).long()
        advantages[: ROWS // 2] = 0.0
    mask = (torch.arange(WIDTH) < lengths[:, None]).long()
    tokens = (ROWS, PROMPT + WIDTH)
    ids = torch.randint(1, VOCABULARY, tokens, generator=generator)
    return {
        "prompt_ids": ids[:, :PROMPT],
        "prompt_mask": torch.ones(ROWS, PROMPT).long(),
        "completion_ids": ids[:, PROMPT:] * mask,
        "completion_mask": mask,
        "advantages": advantages,
        "num_items_in_batch": mask.sum(),
    }


def one(name: str, kind: str) -> dict[str, Any]:
    """Seconds and memory of a trainer's step, and its gradient at the last layer."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    inputs = batch(kind)
    with tempfile.TemporaryDirectory() as folder:
        trainer = built(name, folder)
        head = trainer.model.lm_head.weight

        def step() -> None:
            trainer.model.zero_grad(set_to_none=True)
            trainer._compute_loss(trainer.model, inputs).backward()

        step()  # what is compiled or allocated once
        seconds = []
        for _ in range(STEPS):
            begun = time.process_time()
            step()
            seconds.append(time.process_time() - begun)
        trainer.model.zero_grad(set_to_none=True)
        growth = resident_growth(step)
        gradient = head.grad.flatten()[:: 1 + head.numel() // 4096].tolist()
    return {
        "seconds": statistics.median(seconds),
        "mib": growth / 2**20,
        "gradient": gradient,
    }


def table(rows: list[dict[str, Any]]) -> str:
    """In Markdown."""
    lines = ["| step | batch | seconds | memory, MiB |", "|---|---|---:|---:|"]
    for row in rows:
        figures = f"{row['seconds']:.2f} | {row['mib']:.0f}"
        lines.append(f"| {NAMES[row['name']]} | {row['batch']} | {figures} |")
    return "\n".join(lines)


def main() -> None:
    """Measure all, or one in this process."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--one", nargs=2, metavar=("NAME", "BATCH"))
    chosen = parser.parse_args().one
    if chosen:
        print(json.dumps(one(*chosen)))
        return
    rows: list[dict[str, Any]] = []
    for kind in BATCHES:
        reference = None
        for name in NAMES:
            if name == "liger" and find_spec("liger_kernel") is None:
                continue
            command = [sys.executable, "-m", "benchmarks.trl_recipe", "--one", name, kind]
            said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            found = json.loads(said.splitlines()[-1])
            gradient = torch.tensor(found.pop("gradient"), dtype=torch.float64)
            reference = gradient if reference is None else reference
            change = float((gradient - reference).norm() / reference.norm())
            rows.append({"name": name, "batch": kind, **found, "gradient_differs_by": change})
            print(rows[-1], flush=True)
    RESULTS.write_text(
        json.dumps({"machine": asdict(describe_machine()), "rows": rows}, indent=1) + "\n",
        encoding="utf-8",
    )
    print(table(rows))


if __name__ == "__main__":
    main()
