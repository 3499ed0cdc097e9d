"""The linear head with the Triton kernels over its chunks of logits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch._subclasses import FakeTensorMode

import eligibility as el
from eligibility.ops.backends import cpu, triton
from eligibility.ops.linear import sweep
from eligibility.ops.linear.head import Head
from tests.ops.linear_definition import Case
from tests.ops.triton_rows import DEVICE, error, grain, kernels

ROWS, VOCABULARY, FEATURES = 13, 37, 8
Run = Callable[[Tensor, Tensor, Tensor, dict[str, Any]], Tensor]


def reinforce(hidden: Tensor, weight: Tensor, token: Tensor, options: dict[str, Any]) -> Tensor:
    advantage = torch.arange(float(ROWS), device=DEVICE).cos()
    return el.linear_reinforce_loss(hidden, weight, token, advantage, entropy_coef=0.1, **options)


def clipped(hidden: Tensor, weight: Tensor, token: Tensor, options: dict[str, Any]) -> Tensor:
    each = torch.arange(float(ROWS), device=DEVICE)
    exact = {k: x.detach().double() if k == "bias" else x for k, x in options.items()}
    own = el.linear_log_prob(hidden.detach().double(), weight.detach().double(), token, **exact)
    old, reference = own + 0.3 * each.sin(), own + 0.3 * each.cos()
    return el.linear_clipped_policy_loss(
        hidden, weight, token, (3 * each).cos(), old, clip=(0.1, 0.3), ref_log_prob=reference,
        kl_coef=0.3, token_weight=(each % 4 > 0).float(), **options,
    )  # fmt: skip


def statistics(hidden: Tensor, weight: Tensor, token: Tensor, options: dict[str, Any]) -> Tensor:
    """Any slopes may arrive here."""
    found = el.linear_statistics(hidden, weight, token, **options)
    each = torch.arange(float(ROWS), device=DEVICE)
    parts = (found.log_prob, found.entropy, found.log_normalizer)
    return sum((part * (each + i).cos()).sum() for i, part in enumerate(parts))


def reference() -> el.LinearReference:
    generator = torch.Generator().manual_seed(8)
    shapes = ((ROWS, 5), (VOCABULARY, 5))
    hidden, weight = (torch.randn(shape, generator=generator).to(DEVICE) for shape in shapes)
    return el.LinearReference(hidden, weight)


def exact_kl(hidden: Tensor, weight: Tensor, token: Tensor, options: dict[str, Any]) -> Tensor:
    advantage = torch.arange(float(ROWS), device=DEVICE).cos()
    return el.linear_reinforce_loss(
        hidden, weight, token, advantage, entropy_coef=0.1, z_loss_coef=0.02,
        reference=reference(), kl_coef=0.3, **options,
    )  # fmt: skip


def kl_statistic(hidden: Tensor, weight: Tensor, token: Tensor, options: dict[str, Any]) -> Tensor:
    """Any slope of the KL may arrive here."""
    found = el.linear_statistics(hidden, weight, token, reference=reference(), **options).kl
    assert found is not None
    return (0.3 * found * torch.arange(float(ROWS), device=DEVICE).sin()).sum()


OPTIONS: dict[str, Callable[[Tensor, Tensor], dict[str, Any]]] = {
    "bare": lambda mask, bias: {},
    "all": lambda mask, bias: {"mask": mask, "bias": bias, "softcap": 4.0, "temperature": 0.7},
    "sparse": lambda mask, bias: {"mask": mask.to_sparse_csr()},
}


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
@pytest.mark.parametrize(
    "run", [reinforce, clipped, statistics, exact_kl, kl_statistic], ids=lambda f: f.__name__
)
@pytest.mark.parametrize(("dtype", "option", "chunks"), [
    (torch.float32, "all", 3), (torch.float32, "sparse", 1),
    (torch.bfloat16, "all", 1), (torch.float16, "bare", 3),
])  # fmt: skip
def test_value_and_gradients_are_as_close_to_float64_as_those_of_plain_torch(
    run: Run, dtype: torch.dtype, option: str, chunks: int
) -> None:
    case = Case(1, ROWS, VOCABULARY, FEATURES)
    mask = case.mask().to(DEVICE)
    token = case.token.clone().to(DEVICE)
    token[3] = -100
    row_bytes = VOCABULARY * dtype.itemsize
    chunk = -(-ROWS // chunks) * row_bytes

    def evaluate(precision: torch.dtype) -> tuple[Tensor, ...]:
        tensors = [
            x.detach().to(DEVICE, dtype).to(precision).requires_grad_()
            for x in (case.hidden, case.weight, case.bias)
        ]
        options = OPTIONS[option](mask, tensors[2])
        inputs = tensors if "bias" in options else tensors[:2]
        value = run(tensors[0], tensors[1], token, options)
        return (value.detach(), *torch.autograd.grad(value, inputs, torch.full_like(value, -3.0)))

    exact = evaluate(torch.float64)
    with mock.patch.multiple(
        sweep, _CHUNK_BYTES=chunk, _CHUNK_SHARE=1 << 30, _TILE_ROWS=5, _SLAB_BYTES=400
    ):
        with mock.patch.object(cpu, "serves", return_value=False):
            plain = evaluate(dtype)
        calls = mock.Mock(side_effect=triton._kernels)
        with kernels(), mock.patch.object(triton, "_kernels", calls):
            ours = evaluate(dtype)
    assert calls.call_count >= min(chunks, 2)
    for a, b, truth in zip(ours, plain, exact, strict=True):
        assert a.dtype == b.dtype
        # Two equally good roundings of one number differ by half a unit, by chance.
        own = max(grain(truth, torch.float32), grain(truth, a.dtype) / 6)
        if run in (exact_kl, kl_statistic):  # three roundings of logits below 16, times the slope
            own += 3 * 0.9 * 8 * torch.finfo(torch.float32).eps / 2
        assert error(a, truth) <= 1.01 * error(b, truth) + own


@pytest.mark.parametrize("option", ["bare", "all"])
@pytest.mark.parametrize("run", [clipped, exact_kl], ids=lambda f: f.__name__)
def test_a_part_of_the_vocabulary_that_is_all_of_it_gives_the_same(run: Run, option: str) -> None:
    case = Case(1, ROWS, VOCABULARY, FEATURES)
    mask = case.mask().to(DEVICE)
    tensors = [
        x.detach().to(DEVICE, torch.float32).requires_grad_()
        for x in (case.hidden, case.weight, case.bias)
    ]
    options = OPTIONS[option](mask, tensors[2])
    inputs = tensors if "bias" in options else tensors[:2]
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    found = []
    try:
        for group in (None, dist.group.WORLD):
            with kernels():
                given = {**options, "group": group}
                value = run(tensors[0], tensors[1], case.token.to(DEVICE), given)
                found.append((value.detach(), *torch.autograd.grad(value, inputs)))
    finally:
        dist.destroy_process_group()
    torch.testing.assert_close(found[1], found[0], rtol=1e-5, atol=1e-6)


def test_chunk_on_a_gpu_is_the_whole_where_sums_would_be_larger() -> None:
    with FakeTensorMode():
        weight = torch.empty(151936, 4096, dtype=torch.bfloat16, device="cuda")
        head = Head(weight, None, 1.0, None, None)
        assert sweep._chunk_rows(head, 8192, True) == 8192
        assert sweep._chunk_rows(head, 16384, True) == 1024
        assert sweep._chunk_rows(head, 8192, False) == 1024
