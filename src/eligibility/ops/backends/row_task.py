"""Rows, a loss over them, and the two together in the order of the native kernel's struct."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Loss(NamedTuple):
    """What is summed over rows and samples, with ``w`` their weight, 0 where one does not count.

    ``w (scale_advantage A log π(a) + scale_bonus H + scale_square (log Σ exp z)²
    + scale_reference KL)``, where ``A log π(a)`` is the clipped ``min(r A, clip(r) A)`` of the
    ratio r of π to π_old, if log π_old(a) is given; and once a row
    ``bonus H + normalizer log Σ exp z``.
    """

    advantage: Tensor | None = None  # [S, N]
    weight: Tensor | None = None  # [S, N]; None: 1
    bonus: Tensor | None = None  # [N]; None: 0
    normalizer: Tensor | None = None  # [N]; None: 0
    old: Tensor | None = None  # [S, N], log π_old(a)
    reference: Tensor | None = None  # [S, N], log π_ref(a)
    scale_advantage: float = 0.0
    scale_bonus: float = 0.0
    scale_square: float = 0.0
    scale_reference: float = 0.0
    clip: tuple[float, float] = (0.0, 0.0)  # the bounds of the ratio
    kl_estimator: int = 0  # 1, 2 or 3


class RowTask(NamedTuple):
    """Rows of logits, what was chosen in them, and how the logits enter the softmax."""

    logits: Tensor  # [N, K]
    action: Tensor | None = None  # [S, N]
    counts: Tensor | None = None  # [N, K], instead of actions
    mask: Tensor | None = None  # [N, K], or [1, K] for all
    temperature: float = 1.0
    softcap: float | None = None
    uniform: Tensor | None = None  # [N, S], float64 in [0, 1): by them `action` is drawn


class Results(NamedTuple):
    """What came out; None where it was not asked for."""

    log_prob: Tensor | None  # [S, N]
    entropy: Tensor | None  # [N]
    log_normalizer: Tensor | None  # [N]
    loss: Tensor | None  # [N]
    gradient: Tensor | None  # [N, K]
    value: Tensor | None  # []
    impossible: bool  # whether a row that counts has no finite log π(a)


class Task(NamedTuple):
    """A ``row_task``, as `native/row_task.h` explains it: its fields in their order.

    The library says what its own are; one that was built from other sources is not called.
    """

    logits: Tensor
    action: Tensor | None
    uniform: Tensor | None
    counts: Tensor | None
    mask: Tensor | None
    advantage: Tensor | None
    weight: Tensor | None
    bonus: Tensor | None
    normalizer: Tensor | None
    old: Tensor | None
    reference: Tensor | None
    log_prob: Tensor | None
    entropy: Tensor | None
    log_normalizer: Tensor | None
    loss: Tensor | None
    gradient: Tensor | None
    scale_advantage: float
    scale_bonus: float
    scale_square: float
    scale_reference: float
    clip_low: float
    clip_high: float
    temperature: float
    softcap: float
    rows: int
    categories: int
    samples: int
    sample_stride: int
    logits_stride: int
    counts_stride: int
    mask_stride: int
    gradient_stride: int
    kl_estimator: int
    stream: int
