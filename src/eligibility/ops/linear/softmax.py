"""The softmax of a block of rows in torch's operations: statistics and the logits' gradient."""

from __future__ import annotations

import torch
from torch import Tensor

from eligibility.ops._policy_objective import Slopes, TokenStatistics
from eligibility.ops.linear.head import Head, mask_rows

# e^−10000 is 0 in every dtype, and so is 0 · −10000, where 0 · −∞ is not a number.
_FLOOR = -1e4


class Softmax:
    """Probabilities and statistics of a block of rows; works in the memory of ``z``."""

    def __init__(self, head: Head, z: Tensor, column: Tensor, at: Tensor) -> None:
        self._column = column
        self._scale = 1.0 / head.temperature
        self._capped = _shape(head, z, at, keep=True)
        self._z = z
        self._top = z.amax(1, keepdim=True)
        self._nothing: Tensor | None = None
        if head.shard is not None:  # a part of the vocabulary may allow nothing
            self._nothing = self._top == float("-inf")
            z.masked_fill_(self._nothing, 0.0)
            self._top = self._top.masked_fill(self._nothing, 0.0)
        self._probs = torch.softmax(z, 1)
        # The largest probability is 1 / Σ exp(z − top), so this is the logarithm of that sum.
        self._log_sum = -self._probs.amax(1, keepdim=True).log()
        self._log_prob = z.gather(1, column) - self._top - self._log_sum
        self._mean: Tensor | None = None
        self._above: Tensor | None = None  # log π − log π_ref, 0 where π is
        self._kl: Tensor | None = None
        self._ref_log_normalizer: Tensor | None = None

    def compare(self, head: Head, r: Tensor, at: Tensor) -> None:
        """Take up the raw logits of a reference, in whose memory it works."""
        _shape(head, r, at)
        if self._nothing is not None:
            r.masked_fill_(self._nothing, 0.0)
        top = r.amax(1, keepdim=True)
        mass = torch.exp(r - top).sum(1, keepdim=True)
        # A rounding of either normaliser would shift a whole row; so these numbers are wide.
        ref_log_normalizer = top + mass.double().log()
        shift = ref_log_normalizer - (self._top - self._probs.amax(1, keepdim=True).double().log())
        above = torch.sub(self._z, r, out=r).masked_fill_(self._probs == 0, 0.0)
        above += shift.to(r.dtype)
        self._kl = torch.linalg.vecdot(self._probs, above).unsqueeze(1)
        self._above, self._ref_log_normalizer = above, ref_log_normalizer.to(r.dtype)

    def statistics(self, with_entropy: bool) -> TokenStatistics:
        """What is known now; without the entropy 0 stands for it."""
        log_normalizer = self._top + self._log_sum
        if self._nothing is not None:
            log_normalizer = log_normalizer.masked_fill(self._nothing, float("-inf"))
        parts = (
            self._log_prob,
            self._entropy() if with_entropy else None,
            log_normalizer,
            self._kl,
            self._ref_log_normalizer,
        )
        zeros = torch.zeros_like(log_normalizer)
        return TokenStatistics(*((zeros if part is None else part).squeeze(1) for part in parts))

    def _entropy(self) -> Tensor:
        """``log Σ − Σ p (z − top)``: of two terms neither of which is negative, nothing cancels."""
        self._z.sub_(self._top).clamp_min_(_FLOOR)
        self._mean = torch.linalg.vecdot(self._probs, self._z).unsqueeze(1)
        return self._log_sum - self._mean

    def gradient(self, slopes: Slopes) -> Tensor:
        """The gradient at the raw logits, before soft-cap and temperature; consumes the block."""
        a = slopes.log_prob.unsqueeze(1) * self._scale
        level = -a
        if slopes.log_normalizer is not None:
            level = level + slopes.log_normalizer.unsqueeze(1) * self._scale
        if slopes.entropy is not None and self._mean is not None:
            b = slopes.entropy.unsqueeze(1) * self._scale
            level = torch.addcmul(level + b * self._mean, self._z, -b, out=self._z)
        if slopes.kl is not None and self._above is not None and self._kl is not None:
            k = slopes.kl.unsqueeze(1) * self._scale
            level = self._above.sub_(self._kl).mul_(k).add_(level)
        g = self._probs.mul_(level)
        g.scatter_add_(1, self._column, a)
        if self._capped is not None:
            g.mul_(self._capped.square_().neg_().add_(1.0))
        return g


def _shape(head: Head, z: Tensor, at: Tensor, keep: bool = False) -> Tensor | None:
    """Soft-cap, temperature and mask in place; the ``tanh``, if it is to be kept."""
    capped = None
    if head.softcap is not None:
        forbidden = z == float("-inf")
        z.div_(head.softcap).tanh_()
        capped = z.clone() if keep else None
        z.mul_(head.softcap).masked_fill_(forbidden, float("-inf"))
    if head.temperature != 1.0:
        z.mul_(1.0 / head.temperature)
    if head.mask is not None:
        z.masked_fill_(~mask_rows(head.mask, at), float("-inf"))
    return capped
