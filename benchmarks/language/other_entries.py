"""OpenRLHF, torchtune, slime, prime-rl, ROLL and open-instruct."""

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
    module_with,
    padded,
    reinforce,
    rows,
    with_penalty,
)

OPENRLHF = Project(
    "OpenRLHF/OpenRLHF",
    "3c3be623",
    ".",
    {"loss": "openrlhf.models.loss", "utils": "openrlhf.models.utils"},
)
TORCHTUNE = Project(
    "pytorch/torchtune",
    "bd2a0fc7c",
    ".",
    {"grpo": "torchtune.dev.grpo.loss", "ppo": "torchtune.rlhf.loss.ppo"},
    executed=("torchtune.rlhf",),
)
SLIME = Project(
    "THUDM/slime",
    "624b824a8",
    ".",
    {"ppo": "slime.utils.ppo_utils"},
    stand_ins={"megatron.core": {"mpu": module_with(get_context_parallel_world_size=lambda: 1)}},
)
PRIME = Project(
    "PrimeIntellect-ai/prime-rl", "559b44772", "src", {"rl": "prime_rl.trainer.rl.loss"}
)
PRIME_ADVANTAGE = Project(
    "PrimeIntellect-ai/prime-rl",
    "7d9a34510",
    "src",
    {"advantage": "prime_rl.orchestrator.advantage"},
)
ROLL = Project("alibaba/ROLL", "8eb27cc2", ".", {"f": "roll.utils.functionals"})
OPEN_INSTRUCT = Project(
    "allenai/open-instruct",
    "e6c3044aa",
    ".",
    {
        "grpo": "open_instruct.grpo_utils",
        "model": "open_instruct.model_utils",
        "rl": "open_instruct.rl_utils",
    },
)


def _openrlhf(**options: Any) -> Any:
    def loss(m: Any, batch: Any) -> Any:
        return m.loss.PolicyLoss(**options)(
            batch.log_probs,
            batch.old_log_probs,
            by_token(batch, leave_one_out(batch)),
            action_mask=batch.mask,
        )[0]

    return loss


def _openrlhf_counted(m: Any, batch: Any) -> Any:
    """The repaired call: the divisor is what all micro-batches together have."""
    return m.loss.PolicyLoss()(
        batch.log_probs,
        batch.old_log_probs,
        by_token(batch, leave_one_out(batch)),
        action_mask=batch.mask,
        batch_num_tokens=torch.tensor(4.0),
    )[0]


def _openrlhf_kl(kind: str) -> Any:
    def loss(m: Any, batch: Any) -> Any:
        kl = m.utils.compute_approx_kl(batch.log_probs, batch.ref_log_probs, kind)
        return with_penalty(batch, kl)

    return loss


def _openrlhf_normalised(m: Any, batch: Any) -> Any:
    """Rewards of a group, whitened by row of [prompts, group]."""
    groups = batch.rewards.view(-1, batch.group_size)
    return reinforce(batch, m.utils.masked_normalize(groups, torch.ones_like(groups)).flatten())


def _torchtune(name: str, **options: Any) -> Any:
    def loss(m: Any, batch: Any) -> Any:
        return getattr(m.grpo, name)(**({"kl_coeff": 0.0} | options))(
            batch.old_log_probs,
            batch.log_probs,
            batch.ref_log_probs,
            leave_one_out(batch),
            padding_masks=batch.mask.bool(),
        )[0]

    return loss


def _torchtune_ppo(m: Any, batch: Any) -> Any:
    zeros = torch.zeros_like(batch.mask)
    return m.ppo.PPOLoss(value_coeff=0.0)(
        batch.old_log_probs,
        batch.log_probs,
        by_token(batch, leave_one_out(batch)),
        zeros,
        zeros,
        zeros,
        padding_masks=batch.mask.bool(),
        value_padding_masks=batch.mask.bool(),
    )[0]


def _slime_ppo(m: Any, batch: Any) -> Any:
    terms, _ = m.ppo.compute_policy_loss(
        batch.old_log_probs - batch.log_probs, by_token(batch, leave_one_out(batch)), 0.2, 0.2
    )
    return (terms * batch.mask).sum() / len(terms)


def _slime_gspo(m: Any, batch: Any) -> Any:
    now, old = rows(batch, batch.log_probs), rows(batch, batch.old_log_probs)
    masks = rows(batch, batch.mask)
    kl = m.ppo.compute_gspo_kl(now, old, now, masks)
    advantages = torch.cat(rows(batch, by_token(batch, leave_one_out(batch))))
    terms, _ = m.ppo.compute_policy_loss(kl, advantages, 0.2, 0.2)
    each = torch.stack([part.mean() for part in terms.split([len(x) for x in now])])
    return each.mean()


def _slime_cispo(m: Any, batch: Any) -> Any:
    terms, _ = m.ppo.compute_cispo_loss(
        batch.old_log_probs - batch.log_probs,
        batch.log_probs,
        by_token(batch, leave_one_out(batch)),
        1.0,
        4.0,
    )
    return (terms * batch.mask).sum() / batch.mask.sum()


def _slime_kl(kind: str, ratio: bool = False) -> Any:
    def loss(m: Any, batch: Any) -> Any:
        options = {}
        if ratio:
            options["importance_ratio"] = (batch.log_probs - batch.old_log_probs).exp()
        kl = m.ppo.compute_approx_kl(batch.log_probs, batch.ref_log_probs, kind, **options)
        return with_penalty(batch, kl)

    return loss


def _slime_returns(m: Any, batch: Any) -> Any:
    """REINFORCE++ with the KL in the reward; rows as wide as the batch, as packed ones are."""
    kl = batch.old_log_probs - batch.ref_log_probs
    width = batch.mask.shape[1]
    returns = m.ppo.get_reinforce_plus_plus_returns(
        batch.rewards,
        list(kl),
        list(batch.mask),
        [width] * len(kl),
        [width] * len(kl),
        BETA,
        1.0,
    )
    return reinforce(batch, torch.stack(list(returns)))


def _slime_baseline(coefficient: bool) -> Any:
    """REINFORCE++-baseline without its whitening, which needs ranks."""

    def loss(m: Any, batch: Any) -> Any:
        m.ppo.distributed_masked_whiten = lambda values, mask, shift_mean: values
        kl = rows(batch, batch.old_log_probs - batch.ref_log_probs)
        masks = rows(batch, batch.mask)
        lengths = [len(part) for part in kl]
        extra = (BETA,) if coefficient else ()
        advantages = m.ppo.get_reinforce_plus_plus_baseline_advantages(
            leave_one_out(batch), kl, masks, lengths, *extra
        )
        return reinforce(batch, padded(list(advantages), batch.mask.shape[1]))

    return loss


def _prime(name: str, **options: Any) -> Any:
    def loss(m: Any, batch: Any) -> Any:
        config = Config(
            dppo_mask_high=0.2,
            dppo_mask_low=0.2,
            ipo_threshold=0.5,
            adv_tau=1.0,
            **({"kl_tau": 0.0} | options),
        )
        total = torch.zeros((), dtype=torch.float64)
        for row in range(len(batch.rewards)):
            inputs = m.rl.LossInputs(
                trainer_logprobs=batch.log_probs[row],
                inference_logprobs=batch.old_log_probs[row],
                ref_logprobs=batch.ref_log_probs[row],
                advantages=by_token(batch, leave_one_out(batch))[row],
                loss_mask=batch.mask[row].bool(),
            )
            function = getattr(m.rl, name)
            result = function(inputs) if name == "ref_kl_loss_fn" else function(inputs, config)
            total = total + result.loss
        return total / batch.mask.sum()

    return loss


def _prime_advantage(kind: str) -> Any:
    def loss(m: Any, batch: Any) -> Any:
        config = Config(
            length_weighted_mean=False, leave_one_out=False, neg_clipped=False, std_norm=kind
        )
        advantages = m.advantage.compute_advantages(
            batch.rewards.tolist(), batch.lengths.tolist(), batch.group_size, config
        )
        return reinforce(batch, torch.tensor(advantages, dtype=torch.float64))

    return loss


def _roll(mode: str) -> Any:
    def loss(m: Any, batch: Any) -> Any:
        # As its actor workers call it: what is not masked is masked here or nowhere.
        terms = -batch.log_probs * leave_one_out(batch)[:, None]
        return m.f.agg_loss(loss_mat=terms, loss_mask=batch.mask, loss_agg_mode=mode)

    return loss


def _roll_returns(m: Any, batch: Any) -> Any:
    returns, _ = m.f.compute_reinforce_return(batch.token_rewards, 1.0, 1.0)
    return reinforce(batch, m.f.masked_whiten(returns, batch.mask))


def _roll_kl(kind: str) -> Any:
    def loss(m: Any, batch: Any) -> Any:
        kl = m.f.compute_approx_kl(batch.log_probs, batch.ref_log_probs, batch.mask, kind)
        return with_penalty(batch, kl)

    return loss


def _open_instruct(kind: str) -> Any:
    def loss(m: Any, batch: Any) -> Any:
        config = Config(
            loss_fn=getattr(m.grpo.GRPOLossType, kind), clip_lower=0.2, clip_higher=0.272
        )
        ratio = (batch.log_probs - batch.old_log_probs).exp()
        terms, _, _ = m.grpo.compute_grpo_loss(
            batch.log_probs,
            ratio,
            by_token(batch, leave_one_out(batch)),
            None,
            config,
            torch.ones_like(ratio),
        )
        return m.rl.masked_mean(terms, batch.mask)

    return loss


def _open_instruct_kl(number: int) -> Any:
    def loss(m: Any, batch: Any) -> Any:
        ratio = (batch.log_probs - batch.old_log_probs).exp()
        kl = m.model.estimate_kl(batch.log_probs - batch.ref_log_probs, ratio)[number]
        return with_penalty(batch, kl)

    return loss


def _open_instruct_mean(**options: Any) -> Any:
    def loss(m: Any, batch: Any) -> Any:
        terms = -batch.log_probs * by_token(batch, leave_one_out(batch))
        return m.rl.masked_mean(terms, batch.mask, **options)

    return loss


_SLIME = "https://github.com/THUDM/slime/"
_OPENRLHF = "https://github.com/OpenRLHF/OpenRLHF/"
_MODES = ("seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm")
_BOTH = (("^", "before"), ("", "after"))

ENTRIES = (
    Entry("OpenRLHF PPO, token level", OPENRLHF, _openrlhf()),
    Entry("OpenRLHF PPO, sample level", OPENRLHF, _openrlhf(token_level_loss=False)),
    Entry("OpenRLHF PPO, dual clip", OPENRLHF, _openrlhf(dual_clip=3.0)),
    Entry("OpenRLHF GSPO", OPENRLHF, _openrlhf(policy_loss_type="gspo")),
    *(Entry(f"OpenRLHF kl {k}", OPENRLHF, _openrlhf_kl(k)) for k in ("k1", "k2", "k3")),
    *(
        Entry(
            "OpenRLHF GSPO's level",
            OPENRLHF,
            _openrlhf(policy_loss_type="gspo"),
            commit=f"1b23ecf0{parent}",
            thread=_OPENRLHF + "commit/1b23ecf0",
            state=state,
        )
        for parent, state in _BOTH
    ),
    *(
        Entry(
            "OpenRLHF #1250 masked_normalize",
            OPENRLHF,
            _openrlhf_normalised,
            commit=f"b3d29278{parent}",
            thread=_OPENRLHF + "pull/1250",
            state=state,
        )
        for parent, state in _BOTH
    ),
    Entry(
        "OpenRLHF #1249 normaliser of micro-batches",
        OPENRLHF,
        _openrlhf(),
        commit="c5bebd14^",
        options={"micro_batch": 2},
        thread=_OPENRLHF + "pull/1249",
        state="before",
    ),
    Entry(
        "OpenRLHF #1249 normaliser of micro-batches",
        OPENRLHF,
        _openrlhf_counted,
        commit="c5bebd14",
        options={"micro_batch": 2},
        thread=_OPENRLHF + "pull/1249",
        state="after",
    ),
    *(
        Entry(f"torchtune {name}", TORCHTUNE, _torchtune(name))
        for name in ("GRPOLoss", "GRPOCompletionLoss", "GRPOSimpleLoss")
    ),
    Entry("torchtune PPOLoss", TORCHTUNE, _torchtune_ppo),
    Entry("torchtune GRPOSimpleLoss, KL", TORCHTUNE, _torchtune("GRPOSimpleLoss", kl_coeff=BETA)),
    Entry(
        "torchtune GRPOCompletionLoss, KL",
        TORCHTUNE,
        _torchtune("GRPOCompletionLoss", kl_coeff=BETA),
        options={"pad_to": 4},  # as many positions as rows: otherwise it raises
    ),
    Entry("slime PPO", SLIME, _slime_ppo),
    Entry("slime GSPO", SLIME, _slime_gspo),
    Entry("slime CISPO", SLIME, _slime_cispo),
    *(Entry(f"slime kl {k}", SLIME, _slime_kl(k)) for k in ("k1", "k2", "k3")),
    Entry("slime kl k3, ratio", SLIME, _slime_kl("k3", ratio=True)),
    *(
        Entry(
            "slime #1372 KL of masked tokens",
            SLIME,
            _slime_returns,
            commit=f"166441911{parent}",
            thread=_SLIME + "pull/1372",
            state=state,
        )
        for parent, state in _BOTH
    ),
    Entry(
        "slime KL of REINFORCE++-baseline",
        SLIME,
        _slime_baseline(False),
        commit="f6f46cb17^",
        thread=_SLIME + "commit/f6f46cb17",
        state="before",
    ),
    Entry(
        "slime KL of REINFORCE++-baseline",
        SLIME,
        _slime_baseline(True),
        commit="f6f46cb17",
        thread=_SLIME + "commit/f6f46cb17",
        state="after",
    ),
    Entry("prime-rl default", PRIME, _prime("default_loss_fn")),
    Entry("prime-rl ipo", PRIME, _prime("ipo_loss_fn")),
    Entry("prime-rl default, KL to inference", PRIME, _prime("default_loss_fn", kl_tau=BETA)),
    Entry("prime-rl ref_kl", PRIME, _prime("ref_kl_loss_fn")),
    *(
        Entry(
            f"prime-rl #1188 deviation {kind}",
            PRIME_ADVANTAGE,
            _prime_advantage(kind),
            commit=f"7d9a34510{parent}",
            thread="https://github.com/PrimeIntellect-ai/prime-rl/pull/1188",
            state=state,
        )
        for kind in ("local", "global")
        for parent, state in _BOTH
    ),
    *(Entry(f"ROLL {mode}", ROLL, _roll(mode)) for mode in ("token-mean", *_MODES)),
    Entry("ROLL REINFORCE, whitened", ROLL, _roll_returns),
    *(Entry(f"ROLL kl {k}", ROLL, _roll_kl(k)) for k in ("mse", "k3")),
    *(
        Entry(
            f"ROLL agg_loss, {mode}",
            ROLL,
            _roll(mode),
            commit=f"d8d7e78f{parent}",
            thread="https://github.com/alibaba/ROLL/commit/d8d7e78f",
            state=state,
        )
        for mode in _MODES
        for parent, state in _BOTH
    ),
    Entry("open-instruct dapo", OPEN_INSTRUCT, _open_instruct("dapo")),
    Entry("open-instruct cispo", OPEN_INSTRUCT, _open_instruct("cispo")),
    *(
        Entry(f"open-instruct kl {number}", OPEN_INSTRUCT, _open_instruct_kl(number))
        for number in range(4)
    ),
    Entry(
        "open-instruct #1161 normaliser of minibatches",
        OPEN_INSTRUCT,
        _open_instruct_mean(),
        options={"micro_batch": 2},
        thread="https://github.com/allenai/open-instruct/pull/1161",
        state="before",
    ),
    Entry(
        "open-instruct #1161 normaliser of minibatches",
        OPEN_INSTRUCT,
        _open_instruct_mean(denominator=4.0),
        options={"micro_batch": 2},
        thread="https://github.com/allenai/open-instruct/pull/1161",
        state="after",
    ),
)
