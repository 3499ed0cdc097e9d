"""The Triton kernels over rows against their definition in torch, and in float64."""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

from eligibility.ops._policy_objective import Upstream
from eligibility.ops.backends import fused_rows, triton
from tests.ops.triton_rows import DEVICE, error, grain, kernels, problem

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
NAMES = ("log_prob", "entropy", "log_normalizer", "kl")


def by_definition(rows: triton.Rows, upstream: Tensor, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """The four statistics and the gradient of their sum with ``upstream``, by autograd."""
    reference = None if rows.reference is None else rows.reference.to(dtype)
    logits = rows.logits.to(dtype).requires_grad_()
    found = fused_rows.composed(replace(rows, logits=logits, reference=reference))
    (gradient,) = torch.autograd.grad(found, logits, tuple(upstream.to(found[0].dtype)))
    return (*(x.detach() for x in found), gradient)


@given(
    rows=st.integers(0, 9),
    categories=st.sampled_from([1, 2, 3, 7, 16, 17, 33, 70]),
    dtype=st.sampled_from(DTYPES),
    looped=st.booleans(),
    masked=st.booleans(),
    softcap=st.sampled_from([None, 5.0]),
    temperature=st.sampled_from([1.0, 0.7]),
    with_reference=st.booleans(),
    seed=st.integers(0, 1000),
)
@settings(max_examples=25, deadline=None, derandomize=True)
def test_statistics_and_gradient_are_as_close_to_float64_as_the_definition(
    rows: int,
    categories: int,
    dtype: torch.dtype,
    looped: bool,
    masked: bool,
    softcap: float | None,
    temperature: float,
    with_reference: bool,
    seed: int,
) -> None:
    p = problem(rows, categories, dtype, seed)
    mask = p["mask"] if masked else None
    reference = p["ref_logits"] if with_reference else None
    given_rows = triton.Rows(p["logits"], p["action"], mask, temperature, softcap, reference)
    upstream = p["upstream"]
    if not with_reference:
        upstream[3] = 0.0
    exact = by_definition(given_rows, upstream, torch.float64)
    plain = by_definition(given_rows, upstream, dtype)
    with kernels(looped):
        found = triton.statistics(given_rows)
        by_kl = upstream[3] if with_reference else None
        gradient = triton.gradient(given_rows, found, *upstream[:3], by_kl)
        at_once = triton.loss_and_gradient(
            replace(given_rows, reference=None), Upstream(*upstream[:3])
        )
    ours = (*(getattr(found, name) for name in NAMES), gradient)
    for name, a, b, truth in zip((*NAMES, "gradient"), ours, plain, exact, strict=True):
        if name != "kl" or with_reference:
            assert error(a, truth) <= max(error(b, truth), grain(truth, a.dtype)), name
    if not with_reference:  # the two kernels share the arithmetic
        assert at_once.gradient is not None
        assert torch.equal(gradient, at_once.gradient)
    if masked:
        assert not gradient[~p["mask"]].any()
        assert not gradient[~p["mask"]].signbit().any()


@pytest.mark.parametrize("looped", [False, True])
def test_strided_misaligned_shared_and_own_memory_make_no_difference(looped: bool) -> None:
    p = problem(5, 37, torch.bfloat16)
    logits, slopes = p["logits"], Upstream(p["upstream"][0], p["upstream"][1], None)
    wide = torch.zeros(5, 41, dtype=logits.dtype, device=DEVICE)
    wide[:, 3:40] = logits
    shared = p["mask"].any(0, keepdim=True)
    with kernels(looped):

        def run(z: Tensor, mask: Tensor, out: Tensor | None = None) -> tuple[Tensor, Tensor]:
            found = triton.loss_and_gradient(triton.Rows(z, p["action"], mask), slopes, out=out)
            assert found.gradient is not None
            return found.table[1:4], found.gradient

        expected = run(logits, shared.expand(5, 37).contiguous())
        memory = logits.clone()
        others = [
            run(wide[:, 3:40], shared),
            run(logits.t().contiguous().t(), shared),
            run(memory, shared, memory),
        ]
    for statistics, gradient in others:
        assert torch.equal(statistics, expected[0])
        assert torch.equal(gradient, expected[1])
    assert others[2][1] is memory


@pytest.mark.parametrize("looped", [False, True])
def test_offsets_are_64_bits_wide(looped: bool) -> None:
    """Three rows that lie 2³⁰ elements apart; what is between them is never touched."""
    p = problem(3, 20, torch.float16)
    far = torch.empty(2**31 + 50, dtype=torch.float16, device=DEVICE)
    far = far.as_strided((3, 20), (2**30 + 5, 1))
    far.copy_(p["logits"])
    slopes = Upstream(p["upstream"][0], None, None)
    with kernels(looped, rows=4):
        expected = triton.loss_and_gradient(triton.Rows(p["logits"], p["action"]), slopes)
        found = triton.loss_and_gradient(triton.Rows(far, p["action"]), slopes, out=far)
    assert torch.equal(found.table[1:4], expected.table[1:4])
    assert expected.gradient is not None
    assert torch.equal(far, expected.gradient)


@pytest.mark.parametrize("looped", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_extremes_are_those_of_the_definition(looped: bool, dtype: torch.dtype) -> None:
    """Certainty, the largest numbers, −∞ beside them, and rows without any number."""
    inf, nan, huge = torch.inf, torch.nan, 3e38
    table = [
        [0.0, -inf, -inf], [huge, -huge, 0.0], [-huge, -huge, -inf], [80.0, 0.0, -80.0],
        [nan, 0.0, 1.0], [-inf, -inf, -inf],
    ]  # fmt: skip
    logits = torch.tensor(table).repeat(1, 7)[:, :20].to(DEVICE, dtype)
    rows = triton.Rows(logits, torch.zeros(6, dtype=torch.int64, device=DEVICE))
    upstream = torch.ones(4, 6, device=DEVICE)
    plain = by_definition(replace(rows, logits=logits.float()), upstream, torch.float32)
    with kernels(looped):
        found = triton.statistics(rows)
        gradient = triton.gradient(rows, found, *upstream[:3], None)
    options = {"equal_nan": True, "rtol": 1e-6, "atol": 1e-6}
    for name, expected in zip(NAMES[:3], plain[:3], strict=True):
        torch.testing.assert_close(getattr(found, name), expected, **options)
    # The definition's own gradient is not a number where a logit of −∞ meets log Σ exp z.
    numbers = [0, 3]
    bits = {"rtol": torch.finfo(dtype).eps, "atol": 1e-6}
    torch.testing.assert_close(gradient[numbers].float(), plain[4][numbers], **bits)
    assert gradient[1:3].isfinite().all()
    assert gradient[4].isnan().all()


def test_scaling_by_one_leaves_every_bit_and_no_rows_need_no_launch() -> None:
    tensor = torch.tensor([1.5, torch.nan, -0.0, 3e38], device=DEVICE).repeat(1100)
    before = tensor.clone()
    with kernels():
        triton.scale(tensor, torch.ones((), device=DEVICE))
        assert torch.equal(tensor.view(torch.int32), before.view(torch.int32))
        triton.scale(tensor, torch.tensor(-2.0, device=DEVICE))
        torch.testing.assert_close(tensor, before * -2.0, equal_nan=True)
        empty = problem(0, 5, torch.float32)
        rows = triton.Rows(empty["logits"], empty["action"])
        assert triton.sample(rows, torch.zeros(1, dtype=torch.int64))[0].shape == (0,)
        assert triton.statistics(rows).loss.shape == (0,)
        triton.scale(empty["logits"], tensor[0])
