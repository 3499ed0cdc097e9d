"""Small repositories: the RLHF book, courses, and trainers that somebody wrote to learn from."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from benchmarks.language.entry import (
    BETA,
    Entry,
    Project,
    by_token,
    leave_one_out,
    module_with,
    reinforce,
    with_penalty,
)

BOOK = Project(
    "natolambert/rlhf-book",
    "a66b0bf1103b",
    "code",
    {"loss": "policy_gradients.loss", "utils": "policy_gradients.utils"},
)
KAIP = Project(
    "KaiP-598/grpo-from-scratch",
    "3251556da577",
    ".",
    {"pg": "grpo.policy_gradient", "utils": "grpo.utils", "rewards": "grpo.rewards"},
)
MEDQA = Project("bayutamawib/minimal-GRPO-pytorch", "86e37913696f", ".", {"loss": "grpo.loss"})
NANO_RL = Project("hitkumar/nano-rl", "f7fa9cbf2428", "src", {"loss": "nano_rl.trainer.rl.loss"})
BUILD = Project(
    "sdivyanshu90/build-your-own-rlhf",
    "93be91866206",
    "src",
    {"ppo": "rlhf.training.ppo.algorithm"},
)


def _book(name: str, **options: Any) -> Any:
    settings = {"clip_eps_lo": 0.2, "clip_eps_hi": 0.28, "beta": 0.0, "kl_estimator": "kl3"}
    settings |= {"sapo_temp_pos": 1.0, "sapo_temp_neg": 1.05} | options

    def loss(m: Any, batch: Any) -> Any:
        experience = SimpleNamespace(
            advantages=leave_one_out(batch)[:, None],
            log_probs_old=batch.old_log_probs,
            log_probs_ref=batch.ref_log_probs,
            action_mask=batch.mask,
        )
        return getattr(m.loss, name)(**settings)(batch.log_probs, experience)

    return loss


def _book_advantage(name: str) -> Any:
    def loss(m: Any, batch: Any) -> Any:
        groups = batch.rewards.view(-1, batch.group_size, 1)
        each = [getattr(m.utils, name)(group) for group in groups]
        return reinforce(batch, torch.cat(each).flatten())

    return loss


def _book_kl(kind: str) -> Any:
    def loss(m: Any, batch: Any) -> Any:
        kl = m.loss.get_approx_kl(kind, batch.log_probs, batch.ref_log_probs, batch.mask)
        return with_penalty(batch, kl)

    return loss


def _book_reward_kl(kind: str) -> Any:
    """As its REINFORCE, RLOO and PPO do: each answer's mean estimate is subtracted."""

    def loss(m: Any, batch: Any) -> Any:
        rewards = {"total": batch.rewards[:, None]}
        config = module_with(beta=BETA, loss="reinforce", kl_estimator=kind)
        old, ref = batch.old_log_probs, batch.ref_log_probs
        return reinforce(
            batch, m.utils.apply_reward_kl(rewards, old, ref, batch.mask, config)["total"].flatten()
        )

    return loss


def _kaip(mean: Callable[[Any, Tensor, Tensor], Tensor]) -> Any:
    def loss(m: Any, batch: Any) -> Any:
        old, weights = batch.old_log_probs, leave_one_out(batch)[:, None]
        terms, _ = m.pg.compute_pg_loss(
            batch.log_probs, "clipped", batch.rewards[:, None], weights, old, 0.2
        )
        return mean(m, terms, batch.mask)

    return loss


def _kaip_advantage(**options: Any) -> Any:
    def loss(m: Any, batch: Any) -> Any:
        advantages, _, _ = m.rewards.compute_advantages(
            lambda answer, _: {"reward": float(answer)},
            list(batch.rewards),
            list(batch.rewards),
            batch.group_size,
            **options,
        )
        return reinforce(batch, advantages)

    return loss


def _medqa(m: Any, batch: Any) -> Any:
    advantages = leave_one_out(batch)[:, None]
    return m.loss.compute_grpo_loss(batch.log_probs, batch.ref_log_probs, advantages, BETA)[0]


def _medqa_advantage(m: Any, batch: Any) -> Any:
    groups = batch.rewards.view(-1, batch.group_size)
    return reinforce(batch, m.loss.compute_grpo_advantage(groups).flatten())


def _nano_rl(kind: str) -> Any:
    config = module_with(ratio_type=kind, token_clip_low=0.125, token_clip_high=8.0, kl_coef=0.0)

    def loss(m: Any, batch: Any) -> Any:
        return m.loss.compute_loss(
            batch.log_probs,
            batch.old_log_probs,
            by_token(batch, leave_one_out(batch)),
            batch.mask.bool(),
            config,
        )[0]

    return loss


def _build(entropy: float) -> Any:
    def loss(m: Any, batch: Any) -> Any:
        zeros = torch.zeros_like(batch.mask)
        return m.ppo.compute_ppo_loss(
            batch.log_probs,
            batch.old_log_probs,
            by_token(batch, leave_one_out(batch)),
            zeros,
            zeros,
            zeros,
            batch.mask.bool(),
            0.2,
            0.2,
            entropy,
            0.0,
            batch.logits,
        ).total_loss

    return loss


ENTRIES = (
    Entry("RLHF book grpo", BOOK, _book("GRPOLoss")),
    Entry("RLHF book grpo, KL", BOOK, _book("GRPOLoss", beta=BETA)),
    Entry("RLHF book gspo", BOOK, _book("GSPOLoss")),
    Entry("RLHF book reinforce", BOOK, _book("ReinforceLoss")),
    Entry("RLHF book cispo", BOOK, _book("CISPOLoss")),
    Entry("RLHF book sapo", BOOK, _book("SAPOLoss")),
    Entry("RLHF book dapo", BOOK, _book("DAPOLoss")),
    Entry("RLHF book adv grpo", BOOK, _book_advantage("compute_standardized_advantages")),
    Entry("RLHF book adv drgrpo", BOOK, _book_advantage("compute_nonstandardized_advantages")),
    Entry("RLHF book adv rloo", BOOK, _book_advantage("compute_loo_advantages")),
    Entry("RLHF book kl kl1", BOOK, _book_kl("kl1")),
    Entry("RLHF book kl kl2", BOOK, _book_kl("kl2")),
    Entry("RLHF book kl kl3", BOOK, _book_kl("kl3")),
    Entry("RLHF book kl kl1 in the reward", BOOK, _book_reward_kl("kl1")),
    Entry("KaiP-598 clipped, masked mean", KAIP, _kaip(lambda m, t, k: m.utils.masked_mean(t, k))),
    Entry(
        "KaiP-598 clipped, length norm",
        KAIP,
        _kaip(lambda m, t, k: m.utils.length_normalized_sum(t, k, t.shape[1])),
    ),
    Entry("KaiP-598 adv", KAIP, _kaip_advantage()),
    Entry("KaiP-598 adv, no std", KAIP, _kaip_advantage(normalize_std=False)),
    Entry("minimal-GRPO-pytorch grpo", MEDQA, _medqa),
    Entry("minimal-GRPO-pytorch adv", MEDQA, _medqa_advantage),
    Entry("hitkumar/nano-rl token", NANO_RL, _nano_rl("token")),
    Entry("hitkumar/nano-rl sequence", NANO_RL, _nano_rl("sequence")),
    Entry("build-your-own-rlhf PPO", BUILD, _build(0.0)),
    Entry("build-your-own-rlhf PPO, entropy", BUILD, _build(BETA)),
)
