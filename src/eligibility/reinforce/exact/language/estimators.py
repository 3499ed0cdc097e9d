"""Estimators of the policy gradient of a language model, each put together from named parts."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from eligibility.reinforce.exact.language import objectives as o


@dataclass(frozen=True)
class TokenEstimator:
    """What a trainer maximises: ``1/G Σ_i 1/d_i Σ_t (correction(Â_i, t) − β penalty(t))``.

    Attributes:
        name: What a table calls it.
        correction: From groups and advantages ``[M, G, 1]`` to terms ``[M, G, T]``.
        baseline: From rewards ``[M, G]`` to advantages ``[M, G]``.
        divisor: d, by what the terms of an answer are divided, ``[M, 1 or G, 1]``.
        penalty_in_loss: The estimator of KL(π ‖ π_ref) that is differentiated with the loss.
        penalty_in_reward: The one whose sum over an answer is subtracted from its reward.

    Example:
        >>> from eligibility.reinforce.exact.language import objectives
        >>> TokenEstimator("PPO, RLOO", objectives.clipped, objectives.leave_one_out).name
        'PPO, RLOO'
    """

    name: str
    correction: o.Correction = o.uncorrected
    baseline: o.Baseline = o.no_baseline
    divisor: o.Divisor = o.over_answers
    penalty_in_loss: o.Penalty | None = None
    penalty_in_reward: o.Penalty | None = None

    @property
    def needs_reference(self) -> bool:
        """Whether a divergence from a reference is a part of it."""
        return self.penalty_in_loss is not None or self.penalty_in_reward is not None

    def __call__(self, group: o.AnswerGroups, kl_coef: float) -> Float[Tensor, " groups"]:
        """The objective of each group, to be maximised, ``[M]``."""
        rewards = group.rewards
        if self.penalty_in_reward is not None:
            penalty = (self.penalty_in_reward(group) * group.mask).sum(-1)
            rewards = rewards - kl_coef * penalty.detach()
        terms = self.correction(group, self.baseline(rewards)[..., None])
        if self.penalty_in_loss is not None:
            terms = terms - kl_coef * self.penalty_in_loss(group)
        return (terms * group.mask / self.divisor(group)).sum(-1).mean(-1)


# What people choose between. Other limits: TokenEstimator("TIS, 5", partial(truncated, cap=5.0)).
CORRECTIONS = (
    TokenEstimator("none", o.uncorrected),
    TokenEstimator("sequence ratio", o.sequence_ratio),
    TokenEstimator("token ratio", o.token_ratio),
    TokenEstimator("TIS by token, C = 2", o.truncated),
    TokenEstimator("TIS by sequence, C = 2", o.sequence_truncated),
    TokenEstimator("MIS by token, [0.5, 2]", o.masked),
    TokenEstimator("MIS by sequence, C = 2", o.sequence_masked),
    TokenEstimator("PPO clip, ε = 0.2", o.clipped),
    TokenEstimator("GSPO, ε = 0.2", o.gspo),
    TokenEstimator("CISPO, 1 + ε = 2", o.cispo, divisor=o.over_tokens),
)

BASELINES = (
    TokenEstimator("no baseline"),
    TokenEstimator("group mean", baseline=o.group_mean),
    TokenEstimator("leave-one-out", baseline=o.leave_one_out),
    TokenEstimator("whitened", baseline=o.whitened),
)

_PENALTIES = {"k1": o.k1, "k2": o.k2, "k3": o.k3, "ratio × k3": o.ratio_k3}
KL_ESTIMATORS = (
    *(TokenEstimator(f"{k} in the reward", penalty_in_reward=p) for k, p in _PENALTIES.items()),
    *(TokenEstimator(f"{k} in the loss", penalty_in_loss=p) for k, p in _PENALTIES.items()),
)
