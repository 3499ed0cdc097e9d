"""TRL's ``GRPOTrainer._compute_loss`` with a stand-in for the trainer, and Liger's fused losses."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch

from benchmarks.language.entry import BETA, Config, Entry, Project, leave_one_out

TRL = Project(
    "huggingface/trl",
    "f2cd57710",
    ".",
    {"grpo": "trl.trainer.grpo_trainer"},
    executed=("trl", "trl.trainer"),
    stand_ins={"trl.generation.vllm_client": {"VLLMClient": object}},  # talks to a server
    replaced=False,
)
LIGER = Project(
    "linkedin/Liger-Kernel",
    "ead96b61",
    "src",
    {"grpo": "liger_kernel.chunked_loss.grpo_loss"},
)


def _gathered(value: Any, *_: Any, **__: Any) -> Any:
    return value


def _trainer(m: Any, batch: Any, loss_type: str, **options: Any) -> Any:
    """What ``_compute_loss`` reads of its trainer."""
    trainer = m.grpo.GRPOTrainer
    values = {
        "importance_sampling_level": "token",
        "beta": 0.0,
        "use_bias_correction_kl": False,
        "mask_truncated": False,
    } | options
    arguments = Config(
        use_bias_correction_kl=values["use_bias_correction_kl"],
        delta=None,
        sapo_temperature_pos=1.0,
        sapo_temperature_neg=1.05,
        vespo_k_pos=2.0,
        vespo_lambda_pos=3.0,
        vespo_k_neg=3.0,
        vespo_lambda_neg=2.0,
    )
    return Config(
        _get_per_token_logps_and_entropies=lambda *_, **__: (
            batch.log_probs,
            torch.zeros_like(batch.log_probs).detach(),
            None,
        ),
        get_gamma_weights=trainer.get_gamma_weights,
        aux_loss_enabled=False,
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        importance_sampling_level=values["importance_sampling_level"],
        beta=values["beta"],
        args=arguments,
        loss_type=loss_type,
        epsilon_low=0.2,
        epsilon_high=0.2 if loss_type != "cispo" else 5.0,
        use_vllm=False,
        vllm_importance_sampling_correction=False,
        model=Config(training=True),
        current_gradient_accumulation_steps=1,
        max_completion_length=batch.max_length,
        accelerator=Config(
            num_processes=1,
            gather=_gathered,
            gather_for_metrics=_gathered,
            reduce=_gathered,
            sync_gradients=True,
        ),
        _entropy_bonus_enabled=False,
        use_adaptive_entropy=False,
        _metrics={"train": defaultdict(list), "eval": defaultdict(list)},
        _step=0,
    )


def _trl(loss_type: str, **options: Any) -> Any:
    def loss(m: Any, batch: Any) -> Any:
        kept = batch.mask
        if options.get("mask_truncated"):
            kept = kept * batch.ended[:, None]
        counted = batch.mask if options.get("counted") == "generated" else kept
        inputs = {
            "prompt_ids": batch.prompt_tokens,
            "prompt_mask": batch.prompt_mask,
            "completion_ids": batch.tokens,
            "completion_mask": kept,
            "advantages": leave_one_out(batch),
            "old_per_token_logps": batch.old_log_probs,
            "ref_per_token_logps": batch.ref_log_probs,
            "num_items_in_batch": counted.sum(),
        }
        stand_in = _trainer(m, batch, loss_type, **options)
        return m.grpo.GRPOTrainer._compute_loss(stand_in, None, inputs)

    return loss


def _liger(loss_type: str, **options: Any) -> Any:
    def loss(m: Any, batch: Any) -> Any:
        fused = m.grpo.LigerFusedLinearGRPOLoss(
            compiled=False,
            use_ref_model="beta" in options,
            loss_type=loss_type,
            max_completion_length=batch.max_length,
            epsilon_high=5.0 if loss_type == "cispo" else 0.2,
            **({"beta": 0.0} | options),
        )
        value, _ = fused(
            batch.hidden,
            batch.unembedding,
            batch.tokens,
            batch.mask,
            leave_one_out(batch),
            ref_per_token_logps=batch.ref_log_probs,
            old_per_token_logps=batch.old_log_probs,
        )
        return value

    return loss


def _liger_first(m: Any, batch: Any) -> Any:
    """The first release, which made the advantages and chose the tokens itself."""
    fused = m.grpo.LigerFusedLinearGRPOLoss(
        beta=0.0, compiled=False, use_ref_model=False, num_generations=batch.group_size
    )
    return fused(batch.hidden, batch.unembedding, batch.mask, batch.rewards)[0]


def _liger_repaired(m: Any, batch: Any) -> Any:
    fused = m.grpo.LigerFusedLinearGRPOLoss(beta=0.0, compiled=False, use_ref_model=False)
    return fused(batch.hidden, batch.unembedding, batch.tokens, batch.mask, leave_one_out(batch))[0]


_TYPES = ("grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "vespo")
_TRL = "https://github.com/huggingface/trl/"
_KL = {"beta": BETA}
_DEEPSEEK = {"beta": BETA, "use_bias_correction_kl": True}

ENTRIES = (
    *(Entry(f"TRL {kind}", TRL, _trl(kind)) for kind in _TYPES),
    Entry("TRL GSPO", TRL, _trl("grpo", importance_sampling_level="sequence")),
    Entry("TRL luspo", TRL, _trl("luspo", importance_sampling_level="sequence")),
    Entry(
        "TRL #6503 default of use_bias_correction_kl",
        TRL,
        _trl("dr_grpo", **_KL),
        thread=_TRL + "pull/6503",
        state="before",
    ),
    Entry(
        "TRL #6503 default of use_bias_correction_kl",
        TRL,
        _trl("dr_grpo", **_DEEPSEEK),
        thread=_TRL + "pull/6503",
        state="after",
    ),
    Entry(
        "TRL #6586 sequence ratio times the token KL",
        TRL,
        _trl("dr_grpo", importance_sampling_level="sequence", **_DEEPSEEK),
        thread=_TRL + "issues/6586",
        state="before",
    ),
    Entry(
        "TRL #6439 normaliser and truncated answers",
        TRL,
        _trl("dapo", mask_truncated=True, counted="generated"),
        commit="7c1fa85ad^",
        thread=_TRL + "pull/6439",
        state="before",
    ),
    Entry(
        "TRL #6439 normaliser and truncated answers",
        TRL,
        _trl("dapo", mask_truncated=True),
        commit="7c1fa85ad",
        thread=_TRL + "pull/6439",
        state="after",
    ),
    *(Entry(f"Liger {kind}", LIGER, _liger(kind)) for kind in _TYPES[:6]),
    Entry("Liger luspo", LIGER, _liger("luspo", importance_sampling_level="sequence")),
    Entry("Liger dr_grpo, KL", LIGER, _liger("dr_grpo", **_KL)),
    Entry("Liger dr_grpo, corrected KL", LIGER, _liger("dr_grpo", **_DEEPSEEK)),
    Entry(
        "Liger #628 (#553) tokens and groups",
        LIGER,
        _liger_first,
        commit="bf2c67b7^",
        thread="https://github.com/linkedin/Liger-Kernel/pull/628",
        state="before",
    ),
    Entry(
        "Liger #628 (#553) tokens and groups",
        LIGER,
        _liger_repaired,
        commit="bf2c67b7",
        thread="https://github.com/linkedin/Liger-Kernel/pull/628",
        state="after",
    ),
)
