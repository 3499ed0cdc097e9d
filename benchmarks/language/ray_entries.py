"""SkyRL and NeMo-RL."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.language.entry import (
    BETA,
    Config,
    Entry,
    Project,
    by_token,
    leave_one_out,
    prompts_of,
    reinforce,
    with_penalty,
)

SKYRL = Project(
    "NovaSky-AI/SkyRL",
    "a9564572e",
    ".",
    {"ppo": "skyrl.backends.skyrl_train.utils.ppo_utils"},
)
NEMO = Project(
    "NVIDIA-NeMo/RL",
    "7ea279abf",
    ".",
    {
        "loss": "nemo_rl.algorithms.loss.loss_functions",
        "advantage": "nemo_rl.algorithms.advantage_estimator",
    },
)
NEMO_UTILS = Project("NVIDIA-NeMo/RL", "7ea279abf", ".", {"utils": "nemo_rl.algorithms.utils"})


def _skyrl_config() -> Config:
    return Config(
        policy_loss_type="regular",
        eps_clip_low=0.2,
        eps_clip_high=0.2,
        loss_reduction="sequence_mean",
        off_policy_correction=Config(
            tis_ratio_type=None,
            sequence_mask_metric=None,
            outlier_token_is_threshold_low=None,
            outlier_token_is_threshold_high=None,
            token_mask_is_threshold_low=None,
            token_mask_is_threshold_high=None,
        ),
        sapo=Config(tau_pos=1.0, tau_neg=1.05),
        cispo=Config(cispo_anchor="old", cispo_eps_clip_low=1.0, cispo_eps_clip_high=4.0),
    )


def _skyrl(name: str, reduction: str = "seq_mean_token_sum_norm") -> Any:
    def loss(m: Any, batch: Any) -> Any:
        m.ppo.apply_off_policy_correction = lambda loss, old, rollout, mask, config: (
            loss,
            mask,
            {},
        )
        advantages = m.ppo.apply_loss_reduction_to_advantages_minibatch(
            by_token(batch, leave_one_out(batch)), batch.mask, reduction, 2, batch.max_length
        )
        return getattr(m.ppo, name)(
            batch.log_probs,
            batch.old_log_probs,
            advantages,
            _skyrl_config(),
            loss_mask=batch.mask,
        )[0]

    return loss


def _skyrl_advantage(name: str, **options: Any) -> Any:
    def loss(m: Any, batch: Any) -> Any:
        advantages, _ = getattr(m.ppo, name)(
            token_level_rewards=batch.token_rewards.clone(),
            response_mask=batch.mask,
            index=prompts_of(batch),
            **options,
        )
        return reinforce(batch, advantages)

    return loss


def _skyrl_kl(kind: str, *, holes: bool = False) -> Any:
    def loss(m: Any, batch: Any) -> Any:
        reference = batch.ref_log_probs
        if holes:  # what a reference model returns at a padded position can be anything
            reference = torch.where(batch.mask.bool(), reference, torch.nan)
        kl = m.ppo.compute_approx_kl(batch.log_probs, reference, batch.mask, kind)
        return with_penalty(batch, kl)

    return loss


def _nemo(**options: Any) -> Any:
    def loss(m: Any, batch: Any) -> Any:
        values = {
            "disable_ppo_ratio": False,
            "token_level_loss": True,
            "sequence_level_importance_ratios": False,
            "ratio_clip_min": 0.2,
            "ratio_clip_max": 0.2,
            "ratio_clip_c": None,
            "reference_policy_kl_penalty": 0.0,
            "reference_policy_kl_type": "k3",
            "kl_input_clamp_value": 20.0,
            "kl_output_clamp_value": 10.0,
            "use_kl_in_reward": False,
            "use_importance_sampling_correction": False,
            "truncated_importance_sampling_type": None,
            "truncated_importance_sampling_ratio": None,
            "truncated_importance_sampling_ratio_min": None,
            "use_on_policy_kl_approximation": False,
            "force_on_policy_ratio": False,
            "use_cispo": False,
            "positive_example_nll_weight": 0.0,
        } | options

        def later(value: torch.Tensor) -> torch.Tensor:
            """Its first position belongs to the prompt."""
            return torch.nn.functional.pad(value, (1, 0))

        data = {
            "token_mask": later(batch.mask),
            "sample_mask": torch.ones_like(batch.rewards),
            "advantages": later(by_token(batch, leave_one_out(batch))),
            "prev_logprobs": later(batch.old_log_probs),
            "generation_logprobs": later(batch.rollout_log_probs),
            "reference_policy_logprobs": later(batch.ref_log_probs),
        }
        rows = torch.tensor(float(len(batch.rewards)))
        return m.loss.ClippedPGLossFn(Config(**values))(
            batch.log_probs, data, rows, batch.mask.sum()
        )[0]

    return loss


def _nemo_grpo(*, leave_out: bool, normalised: bool) -> Any:
    def loss(m: Any, batch: Any) -> Any:
        estimator = m.advantage.GRPOAdvantageEstimator(
            Config(use_leave_one_out_baseline=leave_out, normalize_rewards=normalised), Config()
        )
        advantages = estimator.compute_advantage(
            batch.prompt[:, None], batch.rewards.float(), batch.mask
        )
        return reinforce(batch, advantages.double())

    return loss


def _nemo_normalised(m: Any, batch: Any) -> Any:
    """As its GRPO loop divides: by the deviation of the others, where there is one."""
    baseline, std = m.utils.calculate_baseline_and_std_per_prompt(
        batch.prompt[:, None], batch.rewards.float(), torch.ones(len(batch.rewards)), True
    )
    advantages = batch.rewards.float() - baseline
    advantages = torch.where(std > 0, advantages / (std + 1e-6), advantages)
    return reinforce(batch, advantages.double())


_SKYRL = "https://github.com/NovaSky-AI/SkyRL/pull/"
_GROUPS_OF_3 = {"group_size": 3, "prompts": 1}

ENTRIES = (
    *(
        Entry(f"SkyRL PPO, {reduction}", SKYRL, _skyrl("ppo_policy_loss", reduction))
        for reduction in ("token_mean", "sequence_mean", "seq_mean_token_sum_norm")
    ),
    Entry("SkyRL GSPO", SKYRL, _skyrl("gspo_policy_loss", "sequence_mean")),
    Entry("SkyRL SAPO", SKYRL, _skyrl("sapo_policy_loss", "sequence_mean")),
    Entry("SkyRL CISPO", SKYRL, _skyrl("compute_policy_loss_cispo", "token_mean")),
    Entry("SkyRL importance sampling", SKYRL, _skyrl("importance_sampling_loss")),
    Entry("SkyRL adv rloo", SKYRL, _skyrl_advantage("compute_rloo_outcome_advantage")),
    Entry("SkyRL adv grpo", SKYRL, _skyrl_advantage("compute_grpo_outcome_advantage")),
    Entry("SkyRL adv maxrl", SKYRL, _skyrl_advantage("compute_maxrl_advantage")),
    Entry(
        "SkyRL adv reinforce++",
        SKYRL,
        _skyrl_advantage("compute_reinforce_plus_plus_outcome_advantage", gamma=1.0),
    ),
    *(Entry(f"SkyRL kl {k}", SKYRL, _skyrl_kl(k)) for k in ("k1", "k2", "k3")),
    *(
        Entry(
            "SkyRL #1635 NaN at masked positions",
            SKYRL,
            _skyrl_kl("k2", holes=True),
            commit=f"2df8f5184{parent}",
            thread=_SKYRL + "1635",
            state=state,
        )
        for parent, state in (("^", "before"), ("", "after"))
    ),
    Entry(
        "SkyRL #1296 token mean of micro-batches",
        SKYRL,
        _skyrl("ppo_policy_loss", "token_mean_legacy"),
        commit="bf243b8d6",
        thread=_SKYRL + "1296",
        state="before",
    ),
    Entry(
        "SkyRL #1296 token mean of micro-batches",
        SKYRL,
        _skyrl("ppo_policy_loss", "token_mean"),
        commit="bf243b8d6",
        thread=_SKYRL + "1296",
        state="after",
    ),
    Entry("NeMo-RL token level", NEMO, _nemo()),
    Entry("NeMo-RL sequence level", NEMO, _nemo(token_level_loss=False)),
    Entry(
        "NeMo-RL GSPO",
        NEMO,
        _nemo(token_level_loss=False, sequence_level_importance_ratios=True),
    ),
    Entry("NeMo-RL CISPO", NEMO, _nemo(use_cispo=True, ratio_clip_max=4.0)),
    *(
        Entry(
            f"NeMo-RL token level, kl {k}",
            NEMO,
            _nemo(reference_policy_kl_penalty=BETA, reference_policy_kl_type=k),
        )
        for k in ("k1", "k2", "k3")
    ),
    Entry("NeMo-RL adv leave-one-out", NEMO, _nemo_grpo(leave_out=True, normalised=False)),
    Entry("NeMo-RL adv mean, normalised", NEMO, _nemo_grpo(leave_out=False, normalised=True)),
    *(
        Entry(
            "NeMo-RL #1423 leave-one-out ÷ deviation",
            NEMO_UTILS,
            _nemo_normalised,
            commit=f"7124e4455{parent}",
            options=_GROUPS_OF_3,
            thread="https://github.com/NVIDIA-NeMo/RL/pull/1423",
            state=state,
        )
        for parent, state in (("^", "before"), ("", "after"))
    ),
)
