"""A policy loss over rows: its definition, in operations that torch differentiates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from eligibility.arguments import check_given, check_tensors
from eligibility.ops._categorical_call import CategoricalCall
from eligibility.ops._policy_objective import PolicyObjective
from eligibility.ops._statistics import divergences, statistics
from eligibility.scalars import check_numbers
from eligibility.shapes import check_shape


class PolicyLoss(NamedTuple):
    """The loss of every row, and how they become one.

    Attributes:
        call: The rows, and what was chosen in them.
        objective: The loss of a row as a function of log π(a) and the entropy.
        reduction: "mean", "sum", "sequence" or "none".
        z_loss_coef: Of the squared log-normaliser.
        reference: The logits of a reference policy, shape of the call's logits, or None.
        exact_kl_coef: Of KL(π ‖ π_ref).
    """

    call: CategoricalCall
    objective: PolicyObjective
    reduction: str = "mean"
    z_loss_coef: float = 0.0
    reference: Tensor | None = None
    exact_kl_coef: float = 0.0

    def value(self) -> Tensor:
        """The reduced loss."""
        loss = self.of_rows()
        if self.reduction == "none":
            return loss
        if self.reduction == "sequence":
            return loss.sum(-1)
        return loss.sum() / self.divisor()

    def of_rows(self) -> Tensor:
        """The loss of each row; 0 where a row does not count."""
        call, objective = self.call, self.objective
        counts = call.counting(objective.token_weight)
        log_prob, entropy = statistics(call, objective.needs_entropy, counts)
        # 0 · −∞ has no value: an impossible action with the advantage 0 contributes 0.
        vain = objective.silent_rows() & (log_prob == float("-inf"))
        possible = log_prob.masked_fill(vain, 0.0)
        if entropy is not None and counts is not None:
            entropy = torch.where(counts, entropy, 0.0)
        loss = objective.loss(possible, log_prob if entropy is None else entropy)
        if self.z_loss_coef != 0.0:
            loss = loss + self._counted(self.z_loss_coef * call.log_normalizer() ** 2)
        if self.reference is not None:
            reference = self.reference
            if counts is not None:
                reference = torch.where(counts.unsqueeze(-1), reference, 0.0)
            loss = loss + self._counted(self.exact_kl_coef * divergences(call, reference))
        return loss

    def _counted(self, loss: Tensor) -> Tensor:
        """A part of the loss of each row, times its weight; 0 where the row does not count."""
        weight = self.objective.token_weight
        counts = self.call.counting(weight)
        if counts is not None:
            loss = torch.where(counts, loss, 0.0)
        return loss if weight is None else loss * weight

    def divisor(self) -> Tensor | int:
        """What the sum is divided by; a tensor where rows are ignored: nothing is read."""
        if self.reduction != "mean":
            return 1
        kept = self.call.kept
        return max(1, self.call.shape.numel()) if kept is None else kept.sum().clamp_min(1)

    def is_gradient_wanted(self) -> bool:
        """Whether the gradient at the logits, and none else, is wanted."""
        if not (torch.is_grad_enabled() and self.call.raw.requires_grad):
            return False
        return not any(tensor.requires_grad for tensor in self.objective.tensors)

    def is_linear(self) -> bool:
        """Whether its slopes in log π(a) and the entropy are known beforehand."""
        return self.reference is None and self.z_loss_coef == 0.0 and self.objective.is_linear

    def parts(self) -> tuple[tuple[Any, ...], tuple[Tensor | None, ...]]:
        """Its numbers, and its tensors with the logits in front: what `rebuilt` takes."""
        call, objective = self.call, self.objective
        numbers = (
            (call.temperature, call.softcap),
            (objective.entropy_coef, objective.clip, objective.kl_coef, objective.kl_estimator),
            (self.reduction, self.z_loss_coef, self.exact_kl_coef),
        )
        tensors = (
            *(call.raw, call.action, call.counts, call.mask, call.kept),
            *(objective.advantage, objective.token_weight),
            *(objective.old_log_prob, objective.ref_log_prob, self.reference),
        )
        return numbers, tensors


def rebuilt(numbers: tuple[Any, ...], tensors: Sequence[Tensor | None]) -> PolicyLoss:
    """The loss of these parts."""
    (temperature, softcap), (entropy_coef, clip, kl_coef, kl_estimator), rest = numbers
    raw, action, counts, mask, kept, advantage, weight, old, ref, reference = tensors
    assert raw is not None  # these two are always there
    assert advantage is not None
    reduction, z_loss_coef, exact_kl_coef = rest
    return PolicyLoss(
        CategoricalCall(raw, action, counts, mask, kept, temperature, softcap),
        PolicyObjective(advantage, weight, entropy_coef, old, clip, ref, kl_coef, kl_estimator),
        reduction,
        z_loss_coef,
        reference,
        exact_kl_coef,
    )


def checked_objective(
    call: CategoricalCall,
    advantage: Tensor,
    weight: Tensor | None,
    entropy_coef: float,
    old_log_prob: Tensor | None = None,
    ref_log_prob: Tensor | None = None,
    clip: tuple[float, float] = (0.2, 0.2),
    kl_coef: float = 0.0,
    kl_estimator: str = "k3",
) -> PolicyObjective:
    """The loss of a row, from tensors that fit; what stands in rows that do not count is 0."""
    check_given(advantage, "advantage", "pass ones to maximise the log-probability itself")
    given: dict[str, Tensor | None] = {
        "advantage": advantage,
        "weight": weight,
        "old_log_prob": old_log_prob,
        "ref_log_prob": ref_log_prob,
    }
    check_numbers(entropy_coef=entropy_coef)
    check_tensors(call.raw, "logits", **given)
    shape = call.shape
    for name, tensor in given.items():
        if tensor is None or tensor.shape == shape:
            continue
        if name in ("advantage", "weight") and tensor.shape == call.raw.shape[:-1]:
            given[name] = tensor.expand(shape)  # the same for all samples of a row
        else:
            check_shape(tensor, shape, name, "one number for each row of logits")
    counts = call.counting(weight)
    if counts is not None:
        for name, tensor in given.items():
            if tensor is not None and not (tensor is weight and call.kept is None):
                given[name] = torch.where(counts, tensor, 0.0)
    advantage, weight, old_log_prob, ref_log_prob = given.values()  # type: ignore[assignment]  # advantage is given
    return PolicyObjective(
        advantage, weight, entropy_coef, old_log_prob, clip, ref_log_prob, kl_coef, kl_estimator
    )
