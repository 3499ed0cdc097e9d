"""The row functions as Triton kernels, for float32, bfloat16 and float16 logits on a CUDA device.

Beyond what the other backends do for rows, soft-cap, temperature and the whole policy loss happen
inside the kernel, so that the raw logits are read once, or twice where a row is too long to keep.
`interpreted` runs the same kernels on the processor, slowly, for tests.

Experimental: the kernels compile and give the right numbers in the interpreter; nobody has timed
them on a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from types import ModuleType

import torch
from torch import Tensor

from eligibility.ops._policy_objective import Objective, PolicyObjective, Upstream

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_ESTIMATORS = {"exact": 0, "k1": 1, "k2": 2, "k3": 3}
_RESULTS = 10  # rows of `results` in the kernels
_TILE = 4096  # logits a program holds where rows are short
_MOST_ROWS = 256  # it holds, however short they are: each takes separate registers
_WIDEST_TILE = 32768  # logits of one row that fit the registers of a program; half with a reference
_LOOP_TILE = 16384  # logits read at a time of a row that does not fit
_VALUES_PER_THREAD = 16

_is_interpreted = False


@contextmanager
def interpreted() -> Iterator[None]:
    """Within it, this backend serves logits on the processor, by Triton's interpreter.

    The environment variable TRITON_INTERPRET must have been 1 when triton was first imported.
    """
    global _is_interpreted
    before, _is_interpreted = _is_interpreted, True
    try:
        yield
    finally:
        _is_interpreted = before


def serves(logits: Tensor) -> bool:
    """Whether this backend can take ``logits``."""
    if logits.dtype not in DTYPES or not (logits.is_cuda or (_is_interpreted and logits.is_cpu)):
        return False
    return unavailable() is None


@cache
def unavailable() -> str | None:
    """Why the kernels cannot run on a CUDA device; None: they can."""
    if find_spec("triton") is None:
        return "triton is not installed"
    if torch.version.hip is not None:
        return "the kernels are made for CUDA, and this torch is built for ROCm"
    return None


def version() -> str:
    """The version of Triton that is installed."""
    return metadata.version("triton")


@cache
def _kernels() -> ModuleType:
    from eligibility.ops.backends import triton_kernels

    return triton_kernels


@cache
def _sampling() -> ModuleType:
    from eligibility.ops.backends import triton_sampling

    return triton_sampling


@dataclass(frozen=True)
class Rows:
    """Rows of raw logits, and what is done to them before the softmax."""

    logits: Tensor  # shape ``[N, V]``
    action: Tensor  # indices in [0, V), checked by the kernel, shape ``[N]``
    mask: Tensor | None = None  # True where legal, shape ``[N, V]`` or ``[1, V]``
    temperature: float = 1.0  # divides, after the soft-cap
    softcap: float | None = None  # c in ``c tanh(z / c)``
    # Logits of another policy, treated alike, shape ``[N, V]``; None: no KL.
    reference: Tensor | None = None


@dataclass(frozen=True)
class Results:
    """What a kernel found out about N rows, in float32."""

    # One row for each of the numbers of `triton_rows`, shape ``[10, N]``. Those of the loss, and of
    # the reference, are filled only where there is one.
    table: Tensor
    # Gradient of the loss with respect to the raw logits, shape ``[N, V]``.
    gradient: Tensor | None = None
    has_loss: bool = False  # whether a loss was evaluated
    has_reference: bool = False  # whether the rows were compared with a reference

    def with_loss(self) -> Tensor:
        """The loss (0 where there is none) and the `TokenStatistics`, shape ``[6, N]``."""
        zeros = torch.zeros_like(self.loss)
        ref_log_normalizer = kl = zeros
        if self.has_reference:
            # KL = Σ π (z − r) − log Σ exp z + log Σ exp r, and the kernel keeps the first two.
            kl, shift = self.kl, self.table[9] + self.table[5] - self.table[8]
            ref_log_normalizer = kl + self.log_normalizer - shift
        loss = self.loss if self.has_loss else zeros
        return torch.stack([loss, *self.table[1:4], kl, ref_log_normalizer])

    @property
    def loss(self) -> Tensor:
        """The loss of each row."""
        return self.table[0]

    @property
    def log_prob(self) -> Tensor:
        """log π(a)."""
        return self.table[1]

    @property
    def entropy(self) -> Tensor:
        """−Σ π log π."""
        return self.table[2]

    @property
    def log_normalizer(self) -> Tensor:
        """log Σ exp z."""
        return self.table[3]

    @property
    def kl(self) -> Tensor:
        """KL(π ‖ π_ref)."""
        return self.table[4]


def statistics(rows: Rows, own: Tensor | None = None) -> Results:
    """The statistics of every row, in one read; ``own`` as `loss_and_gradient`."""
    return _launch_rows(rows, None, own, None)


def loss_and_gradient(
    rows: Rows, objective: Objective, *, own: Tensor | None = None, out: Tensor | None = None
) -> Results:
    """Statistics, loss and gradient; of slopes that are given, the gradient alone.

    ``own``: raw logits of the actions, in place of those in ``rows``, shape ``[N]``. ``out``, for
    the gradient, may be the logits themselves.
    """
    if out is None:
        out = torch.empty_like(rows.logits, memory_format=torch.contiguous_format)
    return _launch_rows(rows, objective, own, out)


def gradient(
    rows: Rows,
    results: Results,
    by_log_prob: Tensor,
    by_entropy: Tensor | None,
    by_log_normalizer: Tensor | None,
    by_kl: Tensor | None,
) -> Tensor:
    """The gradient for slopes that arrived later, from the statistics: one read of the logits."""
    logits, count, categories = _unit_stride(rows.logits), *rows.logits.shape
    out = torch.empty_like(logits, memory_format=torch.contiguous_format)
    if out.numel() == 0:
        return out
    mask = _mask(rows)
    reference = _unit_stride_or_none(rows.reference if by_kl is not None else None)
    tiling = _tiling(categories, logits.stride(0), reference is not None)
    block = min(tiling.block, _TILE)
    tiles = -(-categories // block)
    with _device_of(logits):
        _kernels().gradient_kernel[(-(-count // tiling.rows), tiles)](
            logits, logits.stride(0), out, out.stride(0), reference, _stride(reference),
            mask, _stride(mask), rows.action.contiguous(), results.table,
            *map(_float32, (by_log_prob, by_entropy, by_log_normalizer, by_kl)),
            count, categories, *_shaping(rows), tiling.rows, block,
            **_options(logits, tiling.rows, block),
        )  # fmt: skip
    return out


def sample(rows: Rows, seed: Tensor) -> tuple[Tensor, Results]:
    """An action for each row, drawn with Gumbel noise, and its statistics: one read of the logits.

    ``seed``: 64 random bits on the device of the logits, int64, one element.
    """
    logits, count, categories = _unit_stride(rows.logits), *rows.logits.shape
    action = torch.empty(count, dtype=torch.int64, device=logits.device)
    table = torch.empty((_RESULTS, count), dtype=torch.float32, device=logits.device)
    if count:
        mask, tiling = _mask(rows), _tiling(categories, logits.stride(0), True)
        block = max(4, tiling.block)
        with _device_of(logits):
            _sampling().sample_kernel[(-(-count // tiling.rows),)](
                logits, logits.stride(0), mask, _stride(mask), seed, action, table,
                count, categories, *_shaping(rows), tiling.rows, block, min(tiling.group, block),
                **_options(logits, tiling.rows, block),
            )  # fmt: skip
    return action, Results(table)


def scale(tensor: Tensor, factor: Tensor) -> None:
    """``tensor *= factor`` in place; if the factor is 1, which the device decides, at no cost."""
    if tensor.numel():
        with _device_of(tensor):
            _kernels().scale_kernel[(-(-tensor.numel() // _TILE),)](
                tensor, factor, tensor.numel(), _TILE, **_options(tensor, 1, _TILE)
            )


def _launch_rows(
    rows: Rows, objective: Objective | None, own: Tensor | None, out: Tensor | None
) -> Results:
    logits, count, categories = _unit_stride(rows.logits), *rows.logits.shape
    table = torch.empty((_RESULTS, count), dtype=torch.float32, device=logits.device)
    if count == 0:
        return Results(table, out)
    given: tuple[Tensor | None, ...] = (None, None, None)
    policy: tuple[Tensor | None, ...] = (None, None, None, None)
    numbers: tuple[float | None, ...] = (None, None, None, None, None)
    estimator = 0
    if isinstance(objective, Upstream):
        given = (objective.log_prob, objective.entropy, objective.log_normalizer)
    elif isinstance(objective, PolicyObjective):
        policy = (
            objective.factors(), objective.advantage, objective.old_log_prob, objective.ref_log_prob
        )  # fmt: skip
        if objective.kl_coef != 0.0:
            estimator = _ESTIMATORS[objective.kl_estimator]
        numbers = (
            objective.entropy_coef or None, *objective.clip, objective.kl_coef or None,
            objective.z_loss_coef or None,
        )  # fmt: skip
    reference, mask = _unit_stride_or_none(rows.reference), _mask(rows)
    tiling = _tiling(categories, logits.stride(0), reference is not None)
    with _device_of(logits):
        _kernels().rows_kernel[(-(-count // tiling.rows),)](
            logits, logits.stride(0), out, _stride(out), reference, _stride(reference),
            mask, _stride(mask), rows.action.contiguous(), own, table,
            *map(_float32, given), *map(_float32, policy), count, categories, *_shaping(rows),
            *numbers, estimator, tiling.rows, tiling.block, tiling.group, tiling.one_tile,
            **_options(logits, tiling.rows, tiling.block),
        )  # fmt: skip
    return Results(table, out, isinstance(objective, PolicyObjective), reference is not None)


@dataclass(frozen=True)
class _Tiling:
    """How rows are cut: ``rows`` of them a program, ``block`` logits at a time."""

    rows: int
    block: int
    group: int  # neighbours that a lane sums; the whole block where the row fits
    one_tile: bool


def _tiling(categories: int, stride: int, with_reference: bool) -> _Tiling:
    width = 1 << (categories - 1).bit_length()
    if width <= _WIDEST_TILE // (1 + with_reference):
        return _Tiling(max(1, min(_MOST_ROWS, _TILE // width)), width, width, True)
    # Lanes of 8 are read as one vector; where rows do not begin on one, neighbours are threads.
    return _Tiling(1, _LOOP_TILE, 8 if stride % 16 == 0 else 1, False)


def _options(tensor: Tensor, rows: int, block: int) -> dict[str, int]:
    """How many warps share a tile; and indices out of range stop the kernel, as torch's own do."""
    warps = max(rows // 32, rows * block // (32 * _VALUES_PER_THREAD))
    options = {"num_warps": max(1, min(32, warps))}
    return options | ({"debug": True, "sanitize_overflow": False} if tensor.is_cuda else {})


def _device_of(tensor: Tensor) -> AbstractContextManager[object]:
    """A kernel is launched on the current device, which need not be the tensor's."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()


def _shaping(rows: Rows) -> tuple[float | None, float | None]:
    return (None if rows.temperature == 1.0 else rows.temperature), rows.softcap


def _mask(rows: Rows) -> Tensor | None:
    if rows.mask is None:
        return None
    return _unit_stride(rows.mask.expand(rows.logits.shape)).view(torch.uint8)


def _unit_stride(tensor: Tensor) -> Tensor:
    return tensor if tensor.stride(-1) == 1 or tensor.shape[-1] == 1 else tensor.contiguous()


def _unit_stride_or_none(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else _unit_stride(tensor)


def _stride(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.stride(0)


def _float32(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.to(torch.float32).contiguous()
