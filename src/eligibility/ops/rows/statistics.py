"""log π(a) and the entropy as one autograd node over rows, and the choice of how to compute it."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from eligibility.ops._second_derivatives import by_definition
from eligibility.ops.backends import cpu, fused_rows, plain, selection
from eligibility.ops.backends.row_task import RowTask
from eligibility.ops.rows.categorical_call import CategoricalCall
from eligibility.shapes import are_values_readable


def statistics(
    call: CategoricalCall, with_entropy: bool, counts: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """log π(a), 0 with a gradient of 0 where ``counts`` says so, and, if wanted, the entropy."""
    log_prob, entropy = _of_all_rows(call, with_entropy)
    call.check_possible(log_prob, counts)
    return log_prob if counts is None else torch.where(counts, log_prob, 0.0), entropy


def entropies(
    logits: Tensor, mask: Tensor | None, temperature: float, softcap: float | None
) -> Tensor:
    """The entropy of each row."""
    call = CategoricalCall(logits, None, None, mask, None, temperature, softcap)
    if call.fused is not None:
        return call.fused.entropy.reshape(logits.shape[:-1])
    if selection.pays(logits, one_pass=True) and call.is_native():
        result: Tensor = _NativeStatistics.run(call, with_entropy=True)[1]
        return result
    return plain.entropy(plain.log_pmf(call.logits, mask))


def divergences(call: CategoricalCall, reference: Tensor) -> Tensor:
    """KL(π ‖ π_ref) of each row, the reference taken through the same soft-cap and temperature."""
    if call.is_fusable and fused_rows.serves_constant(reference):
        return fused_rows.statistics(call.kernel_rows(reference)).kl.reshape(call.raw.shape[:-1])
    other = plain.shaped(reference, call.temperature, call.softcap)
    return plain.kl(plain.log_pmf(call.logits, call.mask), plain.log_pmf(other, call.mask))


def _of_all_rows(call: CategoricalCall, with_entropy: bool) -> tuple[Tensor, Tensor | None]:
    """The composition of torch's operations where something traces or transforms it, or where it
    is small; otherwise one pass forward and one backward with the closed-form gradient.
    """
    if call.fused is not None:
        log_prob, entropy = (part.reshape(call.shape) for part in call.fused[:2])
        return log_prob, entropy if with_entropy else None
    if selection.pays(call.raw, with_entropy):
        if call.is_native():
            log_prob, entropy = _NativeStatistics.run(call, with_entropy)
            return log_prob, entropy
        if call.action is not None and call.action.shape == call.raw.shape[:-1]:
            return _in_pieces(call, call.action, with_entropy)
    if call.action is not None:
        selection.check_actions(call.raw, call.action)
    log_probs = plain.log_pmf(call.logits, call.mask)
    return call.chosen(log_probs), plain.entropy(log_probs) if with_entropy else None


def _in_pieces(
    call: CategoricalCall, action: Tensor, with_entropy: bool
) -> tuple[Tensor, Tensor | None]:
    logits, mask = call.logits, call.mask
    batch, categories = logits.shape[:-1], logits.shape[-1]
    rows = mask.reshape(-1, categories) if mask is not None else None
    log_prob, entropy = _RowStatistics.apply(  # type: ignore[no-untyped-call]  # torch
        logits.reshape(-1, categories), action.reshape(-1), rows, with_entropy
    )
    return log_prob.reshape(batch), entropy.reshape(batch) if with_entropy else None


class _RowStatistics(torch.autograd.Function):
    """(log π(a), entropy) of rows ``[N, K]`` in pieces, with the gradient in closed form."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, action: Tensor, mask: Tensor | None, with_entropy: bool
    ) -> tuple[Tensor, Tensor | None]:
        selection.check_actions(logits, action)
        log_prob, entropy = plain.row_statistics(logits, action, mask, with_entropy)
        ctx.save_for_backward(logits, action, mask, entropy)
        ctx.set_materialize_grads(False)
        return log_prob, entropy

    @staticmethod
    def backward(
        ctx: Any, grad_log_prob: Tensor | None, grad_entropy: Tensor | None
    ) -> tuple[Tensor | None, None, None, None]:
        logits, action, mask, entropy = ctx.saved_tensors
        upstream = [grad for grad in (grad_log_prob, grad_entropy) if grad is not None]
        if not upstream:
            return None, None, None, None
        if torch.is_grad_enabled() or not are_values_readable(*upstream):
            result = plain.gradient(logits, action, mask, grad_log_prob, grad_entropy)
        else:
            result = plain.row_gradient(logits, action, mask, entropy, grad_log_prob, grad_entropy)
        return result, None, None, None


class _NativeStatistics(torch.autograd.Function):
    """(log π(a), entropy) by the native kernel, also of samples and counts; None: neither."""

    @staticmethod
    def run(call: CategoricalCall, with_entropy: bool) -> Any:
        """As the operation that torch records."""
        shaping = (call.temperature, call.softcap)
        return _apply_native(call.raw, call.action, call.counts, call.mask, shaping, with_entropy)

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        action: Tensor | None,
        counts: Tensor | None,
        mask: Tensor | None,
        shaping: tuple[float, float | None],
        with_entropy: bool,
    ) -> tuple[Tensor | None, Tensor | None]:
        ctx.save_for_backward(logits, action, counts, mask)
        ctx.set_materialize_grads(False)
        ctx.shaping = shaping
        call = CategoricalCall(logits, action, counts, mask, None, *shaping)
        chosen = action is not None or counts is not None
        found = cpu.run(task_of(call), log_prob=chosen, entropy=with_entropy)
        batch = logits.shape[:-1]
        log_prob, entropy = found.log_prob, found.entropy
        if log_prob is not None:
            log_prob = log_prob.view(batch if action is None else action.shape)
        return log_prob, None if entropy is None else entropy.view(batch)

    @staticmethod
    def backward(
        ctx: Any, grad_log_prob: Tensor | None, grad_entropy: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        logits, action, counts, mask = ctx.saved_tensors
        call = CategoricalCall(logits, action, counts, mask, None, *ctx.shaping)
        return (native_gradient(call, grad_log_prob, grad_entropy), *(None,) * 5)


_apply_native = selection.direct(_NativeStatistics)


def native_gradient(
    call: CategoricalCall, grad_log_prob: Tensor | None, grad_entropy: Tensor | None
) -> Tensor | None:
    """The gradient at the logits by the native kernel; by the definition where autograd asks on."""
    upstream = [grad for grad in (grad_log_prob, grad_entropy) if grad is not None]
    if not upstream:
        return None
    is_plain = cpu.serves(call.raw, *upstream)
    if torch.is_grad_enabled() or not (is_plain and are_values_readable(*upstream)):
        outputs = partial(_definition, call, grad_log_prob is not None)
        return by_definition((call.raw,), outputs, (grad_log_prob, grad_entropy))[0]
    loss = cpu.linear_loss(
        None if grad_log_prob is None else _flat(grad_log_prob, call.action, call.raw),
        None if grad_entropy is None else grad_entropy.reshape(-1),
    )
    found = cpu.run(task_of(call), loss, gradient=True)
    assert found.gradient is not None
    return found.gradient.view(call.raw.shape)


def _definition(call: CategoricalCall, with_log_prob: bool) -> tuple[Tensor, Tensor]:
    """log π of what was chosen, if it is asked for, and the entropy."""
    log_probs = plain.log_pmf(call.logits, call.mask)
    entropy = plain.entropy(log_probs)
    return call.chosen(log_probs) if with_log_prob else entropy, entropy


def task_of(call: CategoricalCall) -> RowTask:
    """The rows of a call, without leading axes."""
    categories = call.raw.shape[-1]
    action, counts, mask = call.action, call.counts, call.mask
    return RowTask(
        logits=call.raw.reshape(-1, categories),
        action=None if action is None else _flat(action, action, call.raw),
        counts=None if counts is None else counts.reshape(-1, categories),
        mask=None if mask is None else mask.reshape(-1, categories),
        temperature=call.temperature,
        softcap=call.softcap,
    )


def _flat(tensor: Tensor, action: Tensor | None, logits: Tensor) -> Tensor:
    """``[S, N]`` where there are samples, else ``[N]``."""
    if action is None or action.ndim == logits.ndim - 1:
        return tensor.reshape(-1)
    own = action.ndim - logits.ndim + 1
    return tensor.reshape(action.shape[:own].numel(), action.shape[own:].numel())
