"""A policy loss over rows: its definition, in operations that torch differentiates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from eligibility.arguments import check_tensors
from eligibility.errors import InvalidTypeError
from eligibility.ops._policy_objective import PolicyObjective
from eligibility.ops.rows.categorical_call import CategoricalCall
from eligibility.ops.rows.statistics import divergences, statistics
from eligibility.scalars import check_numbers
from eligibility.shapes import check_shape


class PolicyLoss(NamedTuple):
    """The loss of every row, and how they become one."""

    call: CategoricalCall  # the rows, and what was chosen in them
    objective: PolicyObjective  # the loss of a row as a function of log π(a) and the entropy
    reduction: str = "mean"  # "mean", "sum", "sequence" or "none"
    # The logits of a reference policy, shape of the call's logits, or None.
    reference: Tensor | None = None

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
        vain = objective.silent_actions() & (log_prob == float("-inf"))
        possible = log_prob.masked_fill(vain, 0.0)
        if entropy is None:
            entropy = log_prob  # which is not looked at
        elif counts is not None:
            entropy = torch.where(counts, entropy, 0.0)
        normalizer = kl = None
        if objective.z_loss_coef != 0.0:
            normalizer = _counted(call.log_normalizer(), counts)
        if self.reference is not None and objective.needs_kl:
            reference = self.reference
            if counts is not None:
                reference = torch.where(counts.unsqueeze(-1), reference, 0.0)
            kl = _counted(divergences(call, reference), counts)
        return objective.loss(possible, entropy, normalizer, kl)

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
        for column in self.objective[:4]:  # a generator takes longer
            if column is not None and column.requires_grad:
                return False
        return True

    def parts(self) -> tuple[tuple[Any, ...], tuple[Tensor | None, ...]]:
        """Its numbers, and its tensors with the logits in front: what `rebuilt` takes."""
        call, objective = self.call, self.objective
        chosen = (call.raw, call.action, call.counts, call.mask, call.kept)
        numbers = ((call.temperature, call.softcap), objective[4:], self.reduction)
        return numbers, (*chosen, *objective[:4], self.reference)


def rebuilt(numbers: tuple[Any, ...], tensors: Sequence[Any]) -> PolicyLoss:
    """The loss of these parts."""
    shaping, coefficients, reduction = numbers
    call = CategoricalCall(*tensors[:5], *shaping)
    objective = PolicyObjective(*tensors[5:9], *coefficients)
    return PolicyLoss(call, objective, reduction, tensors[9])


def _counted(part: Tensor, counts: Tensor | None) -> Tensor:
    """0 where a row does not count."""
    return part if counts is None else torch.where(counts, part, 0.0)


def checked_objective(call: CategoricalCall, objective: PolicyObjective) -> PolicyObjective:
    """The loss of a row, from columns that fit; what stands in rows that do not count is 0."""
    weight = objective.token_weight
    names = ("advantage", "weight", "old_log_prob", "ref_log_prob")
    given: dict[str, Tensor | None] = dict(zip(names, objective[:4], strict=True))
    if objective.advantage is None:
        raise InvalidTypeError(
            "`advantage`", "None", "a tensor", "pass ones to maximise the log-probability itself"
        )
    check_numbers(entropy_coef=objective.entropy_coef, z_loss_coef=objective.z_loss_coef)
    check_tensors(call.raw, "logits", **given)
    shape = call.shape
    for name, tensor in given.items():
        if tensor is None or tensor.shape == shape:
            continue
        if name in ("advantage", "weight") and tensor.shape == call.raw.shape[:-1]:
            given[name] = tensor.expand(shape)  # the same for all samples of a row
        else:
            check_shape(tensor, shape, name, "one number for each row of logits")
    if weight is not None or call.kept is not None:
        counts = call.counting(weight)
        assert counts is not None
        for name, tensor in given.items():
            if tensor is not None and not (tensor is weight and call.kept is None):
                given[name] = torch.where(counts, tensor, 0.0)
    return PolicyObjective(*given.values(), *objective[4:])  # type: ignore[arg-type,call-arg]  # its fields
