"""What trainers maximise, term by term, written as in their papers.

Every function of this file sees `AnswerGroups`, and returns one number for each token of each
answer, ``[M, G, T]``. A trainer sums them over the tokens that the mask keeps, and differentiates.
Only ``log_probs`` carries a gradient. Letters: π the policy, μ the behaviour that the answers were
drawn from, Â the advantage of an answer, ``ρ_t = π(y_t | y_<t)/μ(y_t | y_<t)``, ``ρ = Π_t ρ_t``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from jaxtyping import Float
from torch import Tensor, minimum

Terms: TypeAlias = Float[Tensor, "groups G T"]


@dataclass(frozen=True)
class AnswerGroups:
    """M groups of G answers to one prompt, as a loss sees them; 0 in the padding.

    Attributes:
        log_probs: ``log π(y_t | y_<t)``, the only tensor with a gradient, ``[M, G, T]``.
        behaviour_log_probs: ``log μ(y_t | y_<t)``, ``[M, G, T]``.
        reference_log_probs: ``log π_ref(y_t | y_<t)``, ``[M, G, T]``; None without a reference.
        rewards: One number an answer, ``[M, G]``.
        mask: 1 up to and with the last token, ``[M, G, T]``.
    """

    log_probs: Terms
    behaviour_log_probs: Terms
    reference_log_probs: Terms | None
    rewards: Float[Tensor, "groups G"]
    mask: Terms

    @property
    def lengths(self) -> Float[Tensor, "groups G 1"]:
        """|y|, the tokens of each answer, the end included."""
        return self.mask.sum(-1, keepdim=True)

    @property
    def log_ratio(self) -> Terms:
        """``log ρ_t``, 0 in the padding."""
        return (self.log_probs - self.behaviour_log_probs) * self.mask

    @property
    def token_ratio(self) -> Terms:
        """``ρ_t``, 1 in the padding."""
        return self.log_ratio.exp()

    @property
    def answer_ratio(self) -> Float[Tensor, "groups G 1"]:
        """``ρ = Π_t ρ_t``."""
        return self.log_ratio.sum(-1, keepdim=True).exp()


Correction: TypeAlias = Callable[[AnswerGroups, Tensor], Tensor]
Baseline: TypeAlias = Callable[[Tensor], Tensor]
Penalty: TypeAlias = Callable[[AnswerGroups], Tensor]
Divisor: TypeAlias = Callable[[AnswerGroups], Tensor]

# Corrections ----------------------------------------------------------------------------------


def uncorrected(group: AnswerGroups, advantage: Tensor) -> Terms:
    """``Â log π(y_t)``: REINFORCE, as if π had drawn the answers (Williams 1992)."""
    return advantage * group.log_probs


def token_ratio(group: AnswerGroups, advantage: Tensor) -> Terms:
    """``ρ_t Â``: each token by its own ratio, not by that of what was before it."""
    return group.token_ratio * advantage


def sequence_ratio(group: AnswerGroups, advantage: Tensor) -> Terms:
    """``sg(ρ) Â log π(y_t)``: importance sampling; exact for every μ that draws what π draws."""
    return group.answer_ratio.detach() * advantage * group.log_probs


def truncated(group: AnswerGroups, advantage: Tensor, cap: float = 2.0) -> Terms:
    """``sg(min(ρ_t, C)) Â log π(y_t)``: truncated importance sampling, TIS (Yao et al. 2025)."""
    return group.token_ratio.detach().clamp(max=cap) * advantage * group.log_probs


def masked(group: AnswerGroups, advantage: Tensor, low: float = 0.5, high: float = 2.0) -> Terms:
    """``sg(ρ_t [α ≤ ρ_t ≤ β]) Â log π(y_t)``: masked importance sampling (IcePop, 2025)."""
    ratio = group.token_ratio.detach()
    kept = (ratio >= low) & (ratio <= high)
    return ratio * kept * advantage * group.log_probs


def sequence_truncated(group: AnswerGroups, advantage: Tensor, cap: float = 2.0) -> Terms:
    """``sg(min(ρ, C)) Â log π(y_t)``: the ratio of the answer, truncated (Ionides 2008)."""
    return group.answer_ratio.detach().clamp(max=cap) * advantage * group.log_probs


def sequence_masked(group: AnswerGroups, advantage: Tensor, high: float = 2.0) -> Terms:
    """``sg(ρ [ρ ≤ C]) Â log π(y_t)``: answers above the limit do not count (Liu et al. 2025)."""
    ratio = group.answer_ratio.detach()
    return ratio * (ratio <= high) * advantage * group.log_probs


def clipped(group: AnswerGroups, advantage: Tensor, clip: float = 0.2) -> Terms:
    """``min(ρ_t Â, clip(ρ_t, 1 − ε, 1 + ε) Â)``: PPO by token (Schulman et al. 2017, eq. 7)."""
    ratio = group.token_ratio
    return minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)


def gspo(group: AnswerGroups, advantage: Tensor, clip: float = 0.2) -> Terms:
    """``min(s Â, clip(s, 1 − ε, 1 + ε) Â)`` with ``s = ρ^{1/|y|}`` (Zheng et al. 2025).

    One number an answer, shared out evenly over its tokens.
    """
    s = (group.log_ratio.sum(-1, keepdim=True) / group.lengths).exp()
    objective = minimum(s * advantage, s.clamp(1 - clip, 1 + clip) * advantage)
    return (objective / group.lengths).expand_as(group.mask)


def cispo(group: AnswerGroups, advantage: Tensor, high: float = 2.0) -> Terms:
    """``sg(min(ρ_t, 1 + ε_high)) Â log π(y_t)``: MiniMax-M1 (2025), without the lower limit.

    ``high`` is 1 + ε_high. Summed over tokens it is TIS with C = 1 + ε_high; the paper divides by
    the tokens of the group: `over_tokens`.
    """
    return group.token_ratio.clamp(max=high).detach() * advantage * group.log_probs


# Baselines: the advantage [M, G] of rewards [M, G] ----------------------------------------------


def no_baseline(rewards: Tensor) -> Tensor:
    """``Â = R``."""
    return rewards


def group_mean(rewards: Tensor) -> Tensor:
    """``Â_i = R_i − mean_j R_j``, one's own reward included: ``(G − 1)/G`` of leave-one-out."""
    return rewards - rewards.mean(-1, keepdim=True)


def leave_one_out(rewards: Tensor) -> Tensor:
    """``Â_i = R_i − mean_{j≠i} R_j`` (Kool et al. 2019)."""
    others = rewards.sum(-1, keepdim=True) - rewards
    return rewards - others / (rewards.shape[-1] - 1)


def whitened(rewards: Tensor) -> Tensor:
    """``Â_i = (R_i − mean R)/(std R + 1e-4)``: GRPO (Shao et al. 2024), n − 1 in the deviation."""
    deviation = rewards.std(-1, keepdim=True)
    return group_mean(rewards) / (deviation + 1e-4)


# Estimators of the divergence from the reference ------------------------------------------------


def k1(group: AnswerGroups) -> Terms:
    """``log π − log π_ref``."""
    return group.log_probs - _reference(group)


def k2(group: AnswerGroups) -> Terms:
    """``½ (log π − log π_ref)²``."""
    return 0.5 * (group.log_probs - _reference(group)) ** 2


def k3(group: AnswerGroups) -> Terms:
    """``r − 1 − log r`` with ``r = π_ref/π`` (Schulman 2020)."""
    log_ratio = _reference(group) - group.log_probs
    return log_ratio.exp() - 1 - log_ratio


def ratio_k3(group: AnswerGroups) -> Terms:
    """``ρ_t k3``, differentiated through both (DeepSeek-V3.2 2025, eq. 7)."""
    return group.token_ratio * k3(group)


def _reference(group: AnswerGroups) -> Tensor:
    assert group.reference_log_probs is not None  # `compare` refuses a penalty without a reference
    return group.reference_log_probs


# Divisors: by what the terms of an answer are divided, [M, 1 or G, 1] -----------------------------


def over_answers(group: AnswerGroups) -> Tensor:
    """``1``: the sum over an answer's tokens (Dr. GRPO up to a constant, Liu et al. 2025)."""
    return group.mask.new_ones(1, 1, 1)


def over_own_length(group: AnswerGroups) -> Tensor:
    """``|y_i|``: the mean over each answer (GRPO)."""
    return group.lengths


def over_tokens(group: AnswerGroups) -> Tensor:
    """``Σ_j |y_j| / G``: the mean over the group's tokens (DAPO, CISPO)."""
    return group.lengths.mean(1, keepdim=True)
