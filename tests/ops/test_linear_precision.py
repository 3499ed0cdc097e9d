"""Half precision and float32: never further from float64 than the plain way in the same dtype."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import eligibility as el
from eligibility.ops.backends import cpu
from eligibility.ops.linear import sweep

ROWS, VOCABULARY, FEATURES = 96, 257, 32
LOW = [torch.bfloat16, torch.float16, torch.float32]


@pytest.fixture(params=["torch", "native"], autouse=True)
def _rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test with the native kernel over rows, where it is built, and without it."""
    if request.param == "torch":
        monkeypatch.setattr(cpu, "knows", lambda _: False)
    elif not cpu.is_built():
        pytest.skip("the native kernel is not built")


def statistics(hidden: Tensor, weight: Tensor, token: Tensor) -> tuple[Tensor, Tensor]:
    """The plain way: every step in the dtype of its inputs."""
    log_probs = torch.nn.functional.linear(hidden, weight).log_softmax(-1)
    entropy = -(log_probs.exp() * log_probs).sum(-1)
    return log_probs.gather(-1, token.unsqueeze(-1)).squeeze(-1), entropy


def problem(dtype: torch.dtype, scale: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(7)
    hidden = scale * torch.randn(ROWS, FEATURES, generator=generator)
    weight = torch.randn(VOCABULARY, FEATURES, generator=generator) / FEATURES**0.5
    token = torch.randint(VOCABULARY, (ROWS,), generator=generator)
    advantage = torch.randn(ROWS, generator=generator)
    return hidden.to(dtype), weight.to(dtype), token, advantage


def rms(found: Tensor, exact: Tensor) -> float:
    return float((found.double() - exact).square().mean().sqrt())


def run(kind: str, hidden: Tensor, weight: Tensor, token: Tensor, advantage: Tensor) -> Any:
    """log_prob, entropy and the gradients of the REINFORCE loss with an entropy bonus."""
    hidden, weight = hidden.clone().requires_grad_(), weight.clone().requires_grad_()
    if kind == "ours":
        parts = el.linear_statistics(hidden, weight, token)
        values = (parts.log_prob, parts.entropy)
        loss = el.linear_reinforce_loss(
            hidden, weight, token, advantage.to(torch.float32), entropy_coef=0.1
        )
    else:
        values = statistics(hidden, weight, token)
        loss = -(advantage.to(hidden.dtype) * values[0] + 0.1 * values[1]).mean()
    return (*(value.detach() for value in values), *torch.autograd.grad(loss, (hidden, weight)))


@pytest.mark.parametrize("scale", [1.0, 8.0], ids=["flat", "peaked"])
@pytest.mark.parametrize("chunks", [1, 6])
@pytest.mark.parametrize("dtype", LOW, ids=str)
def test_errors_are_at_most_those_of_the_plain_way(
    dtype: torch.dtype, chunks: int, scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    row_bytes = VOCABULARY * dtype.itemsize
    monkeypatch.setattr(sweep, "_CHUNK_BYTES", ROWS // chunks * row_bytes)
    monkeypatch.setattr(sweep, "_CHUNK_SHARE", 1 << 30)
    monkeypatch.setattr(sweep, "_SLAB_BYTES", 100 * FEATURES * 4)
    monkeypatch.setattr(sweep, "_TILE_ROWS", 30)
    inputs = problem(dtype, scale)
    exact = run("plain", *(x.double() if x.is_floating_point() else x for x in inputs))
    ours, plain = run("ours", *inputs), run("plain", *inputs)
    names = ("log_prob", "entropy", "hidden", "weight")
    for name, a, b, truth in zip(names, ours, plain, exact, strict=True):
        # 1 %: two equally good roundings of the same product differ in their rms by chance; and
        # what is returned in float32 is itself rounded, to half a unit in the last place of < 8.
        last_place = 4 * torch.finfo(torch.float32).eps if a.dtype == torch.float32 else 0.0
        own = last_place / 2 if name in ("log_prob", "entropy") else 0.0
        assert rms(a, truth) <= 1.01 * rms(b, truth) + own, name


@pytest.mark.parametrize("dtype", LOW[:2], ids=str)
def test_log_prob_of_half_precision_inputs_is_ten_times_closer(dtype: torch.dtype) -> None:
    inputs = problem(dtype, 1.0)
    exact = run("plain", *(x.double() if x.is_floating_point() else x for x in inputs))
    ours, plain = run("ours", *inputs), run("plain", *inputs)
    for which in (0, 1):
        assert 10 * rms(ours[which], exact[which]) < rms(plain[which], exact[which])


@pytest.mark.parametrize("dtype", LOW, ids=str)
def test_statistics_are_float32_and_no_log_probability_is_positive(dtype: torch.dtype) -> None:
    hidden, weight, _, _ = problem(dtype, 64.0)
    token = torch.nn.functional.linear(hidden, weight).argmax(-1)
    result = el.linear_statistics(hidden, weight, token)
    assert result.log_prob.dtype == result.entropy.dtype == torch.float32
    assert bool((result.log_prob <= 0).all())
    assert bool((result.entropy >= 0).all())


@pytest.mark.parametrize("dtype", LOW, ids=str)
@pytest.mark.parametrize("masked", [False, True])
def test_masks_temperature_and_clipping_hold_in_every_dtype(
    dtype: torch.dtype, masked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "_CHUNK_BYTES", 10 * VOCABULARY * dtype.itemsize)
    monkeypatch.setattr(sweep, "_CHUNK_SHARE", 1 << 30)
    hidden, weight, token, advantage = problem(dtype, 1.0)
    mask = torch.arange(VOCABULARY) % 3 != 1
    options = {"mask": mask, "temperature": 0.8} if masked else {}
    token = torch.where(mask[token], token, 0)
    exact = [x.double().requires_grad_() for x in (hidden, weight)]
    low = [x.clone().requires_grad_() for x in (hidden, weight)]
    old = el.linear_log_prob(*exact, token, **options).detach() + 0.3 * advantage.double()

    def run(inputs: list[Tensor], scalars: torch.dtype) -> tuple[Tensor, tuple[Tensor, ...]]:
        loss = el.linear_clipped_policy_loss(
            *inputs, token, advantage.to(scalars), old.to(scalars), clip=(0.1, 0.15), **options
        )
        return loss.detach(), torch.autograd.grad(loss, inputs)

    (found, gradients), (truth, wanted) = run(low, torch.float32), run(exact, torch.float64)
    # A few roundings to the dtype, of logits (|z| < 8) and of the gradient.
    eps = torch.finfo(dtype).eps
    assert abs(float(found - truth)) < 8 * eps
    for a, b in zip(gradients, wanted, strict=True):
        assert rms(a, b) < 8 * eps * float(b.square().mean().sqrt())
