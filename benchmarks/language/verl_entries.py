"""verl: ``core_algos``."""

from __future__ import annotations

from typing import Any

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

VERL = Project(
    "volcengine/verl",
    "b178a3cd5",
    ".",
    {"algos": "verl.trainer.ppo.core_algos"},
    executed=("verl.utils",),
)
# Neither of the two classes can be made without verl's whole configuration.
_ALGORITHM = type("AlgoConfig", (), {})


def _config(**batch: Any) -> Config:
    return Config(
        clip_ratio=0.2,
        clip_ratio_low=None,
        clip_ratio_high=None,
        tau_pos=1.0,
        tau_neg=1.05,
        global_batch_info=batch,
        gamma=1.0,
    )


def _policy_loss(name: str, mode: str = "seq-mean-token-sum", **batch_info: Any) -> Any:
    def loss(m: Any, batch: Any) -> Any:
        m.algos.ActorConfig, m.algos.AlgoConfig = Config, _ALGORITHM
        return getattr(m.algos, name)(
            batch.old_log_probs,
            batch.log_probs,
            by_token(batch, leave_one_out(batch)),
            batch.mask,
            loss_agg_mode=mode,
            config=_config(**batch_info),
        )[0]

    return loss


def _advantage(name: str, **options: Any) -> Any:
    def loss(m: Any, batch: Any) -> Any:
        advantages, _ = getattr(m.algos, name)(
            token_level_rewards=batch.token_rewards.clone(),
            response_mask=batch.mask,
            config=_config(),
            **(
                {} if name.endswith("plus_plus_outcome_advantage") else {"index": prompts_of(batch)}
            ),
            **options,
        )
        return reinforce(batch, advantages)

    return loss


def _penalty(kind: str) -> Any:
    def loss(m: Any, batch: Any) -> Any:
        return with_penalty(batch, m.algos.kl_penalty(batch.log_probs, batch.ref_log_probs, kind))

    return loss


def _reward_penalty(m: Any, batch: Any) -> Any:
    rewards = m.algos.compute_rewards(
        batch.token_rewards, batch.old_log_probs, batch.ref_log_probs * 1.0, BETA
    )
    to_go = (rewards * batch.mask).flip(1).cumsum(1).flip(1)
    return reinforce(batch, to_go)


def _aggregate(mode: str, **options: Any) -> Any:
    def loss(m: Any, batch: Any) -> Any:
        terms = -batch.log_probs * by_token(batch, leave_one_out(batch))
        return m.algos.agg_loss(terms, batch.mask, mode, **options)

    return loss


_MODES = ("token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm")
_FIRST = "https://github.com/verl-project/verl/pull/"

ENTRIES = (
    *(
        Entry(f"verl vanilla, {mode}", VERL, _policy_loss("compute_policy_loss_vanilla", mode))
        for mode in _MODES
    ),
    *(
        Entry(f"verl {name}", VERL, _policy_loss(f"compute_policy_loss_{name}"))
        for name in ("gspo", "sapo", "gpg", "geo_mean", "cispo")
    ),
    Entry("verl adv grpo", VERL, _advantage("compute_grpo_outcome_advantage")),
    Entry(
        "verl adv grpo, no std",
        VERL,
        _advantage("compute_grpo_outcome_advantage", norm_adv_by_std_in_grpo=False),
    ),
    *(
        Entry(f"verl adv {name}", VERL, _advantage(f"compute_{name}_outcome_advantage"))
        for name in (
            "rloo",
            "rloo_vectorized",
            "opo",
            "gpg",
            "reinforce_plus_plus",
            "reinforce_plus_plus_baseline",
        )
    ),
    *(Entry(f"verl kl {k}", VERL, _penalty(k)) for k in ("k1", "k2", "k3", "k3+")),
    Entry("verl kl k1 in the reward", VERL, _reward_penalty),
    *(
        Entry(
            "verl #931 seq-mean-token-sum",
            VERL,
            _aggregate("seq-mean-token-sum"),
            commit=f"4d722b176{parent}",
            thread=_FIRST + "931",
            state=state,
        )
        for parent, state in (("^", "before"), ("", "after"))
    ),
    Entry(
        "verl #4360 divisor of seq-mean-token-sum-norm",
        VERL,
        _aggregate("seq-mean-token-sum-norm"),
        commit="6e6ae96c6^",
        thread=_FIRST + "4360",
        state="before",
    ),
    Entry(
        "verl #4360 divisor of seq-mean-token-sum-norm",
        VERL,
        _aggregate("seq-mean-token-sum-norm", loss_scale_factor=3),
        commit="6e6ae96c6",
        thread=_FIRST + "4360",
        state="after",
    ),
    Entry(
        "verl low_var_kl, straight through",
        VERL,
        _penalty("low_var_kl"),
        thread=_FIRST + "2953",
        state="before",
    ),
    Entry(
        "verl low_var_kl, straight through",
        VERL,
        _penalty("k3+"),
        thread=_FIRST + "2953",
        state="after",
    ),
)
