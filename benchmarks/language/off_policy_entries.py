"""Losses whose answers come from another policy: an older one, or an inference engine's."""

from __future__ import annotations

from typing import Any

from benchmarks.language.entry import Entry, Project, by_token, leave_one_out
from benchmarks.language.huggingface_entries import LIGER, TRL, _liger, _trl
from benchmarks.language.other_entries import (
    OPEN_INSTRUCT,
    OPENRLHF,
    PRIME,
    SLIME,
    TORCHTUNE,
    _open_instruct,
    _openrlhf,
    _prime,
    _slime_gspo,
    _slime_ppo,
    _torchtune,
    _torchtune_ppo,
)
from benchmarks.language.ray_entries import NEMO, SKYRL, _nemo, _skyrl
from benchmarks.language.verl_entries import VERL, _policy_loss

AREAL = Project(
    "inclusionAI/AReaL", "4aef98d8d", ".", {"functional": "areal.utils.functional.functional"}
)


def _openrlhf_engine(kind: str) -> Any:
    """The correction for the inference engine; what it truncates or masks at 0.5 and 1.5."""

    def loss(m: Any, batch: Any) -> Any:
        return m.loss.PolicyLoss(
            enable_vllm_is_correction=True,
            vllm_is_truncated_threshold=[0.5, 1.5],
            vllm_is_correction_type=kind,
        )(
            batch.log_probs,
            batch.old_log_probs,
            by_token(batch, leave_one_out(batch)),
            action_mask=batch.mask,
            rollout_log_probs=batch.rollout_log_probs,
        )[0]

    return loss


def _areal_ppo(m: Any, batch: Any) -> Any:
    return m.functional.ppo_actor_loss_fn(
        logprobs=batch.log_probs,
        proximal_logprobs=batch.old_log_probs,
        old_logprobs=batch.rollout_log_probs,
        advantages=by_token(batch, leave_one_out(batch)),
        eps_clip=0.2,
        loss_mask=batch.mask.bool(),
    )[0]


def _areal_sapo(m: Any, batch: Any) -> Any:
    return m.functional.sapo_loss_fn(
        batch.log_probs,
        batch.old_log_probs,
        by_token(batch, leave_one_out(batch)),
        1.0,
        1.05,
        batch.mask.bool(),
    )[0]


_OLDER = (
    ("verl vanilla, token-mean", VERL, _policy_loss("compute_policy_loss_vanilla", "token-mean")),
    *(
        (f"verl {name}", VERL, _policy_loss(f"compute_policy_loss_{name}"))
        for name in ("gspo", "sapo", "cispo", "geo_mean")
    ),
    ("TRL grpo", TRL, _trl("grpo")),
    ("TRL GSPO", TRL, _trl("grpo", importance_sampling_level="sequence")),
    ("TRL sapo", TRL, _trl("sapo")),
    ("Liger grpo", LIGER, _liger("grpo")),
    ("OpenRLHF PPO", OPENRLHF, _openrlhf()),
    ("OpenRLHF PPO, dual clip", OPENRLHF, _openrlhf(dual_clip=3.0)),
    ("OpenRLHF GSPO", OPENRLHF, _openrlhf(policy_loss_type="gspo")),
    ("slime PPO", SLIME, _slime_ppo),
    ("slime GSPO", SLIME, _slime_gspo),
    ("torchtune PPOLoss", TORCHTUNE, _torchtune_ppo),
    ("torchtune GRPOSimpleLoss", TORCHTUNE, _torchtune("GRPOSimpleLoss")),
    ("prime-rl default", PRIME, _prime("default_loss_fn")),
    ("open-instruct dapo", OPEN_INSTRUCT, _open_instruct("dapo")),
    ("open-instruct cispo", OPEN_INSTRUCT, _open_instruct("cispo")),
    ("SkyRL PPO", SKYRL, _skyrl("ppo_policy_loss")),
    ("SkyRL importance sampling", SKYRL, _skyrl("importance_sampling_loss")),
    ("NeMo-RL token level", NEMO, _nemo()),
    ("AReaL PPO", AREAL, _areal_ppo),
    ("AReaL SAPO", AREAL, _areal_sapo),
)
_ENGINE = (
    *((f"OpenRLHF {k}", OPENRLHF, _openrlhf_engine(k)) for k in ("tis", "icepop", "seq-mask-tis")),
    (
        "NeMo-RL truncated",
        NEMO,
        _nemo(
            use_importance_sampling_correction=True,
            truncated_importance_sampling_type="tis",
            truncated_importance_sampling_ratio=1.5,
        ),
    ),
    ("AReaL PPO, without rejection", AREAL, _areal_ppo),
)

ENTRIES = tuple(
    Entry(f"{name}, answers of {words}", project, loss, options={"behaviour": behaviour})
    for words, behaviour, kind in (
        ("an older policy", "old", _OLDER),
        ("an engine", "rollout", _ENGINE),
    )
    for name, project, loss in kind
)
