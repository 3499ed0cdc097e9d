"""The public operations over logits, served by the Triton kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor

import eligibility as el
from eligibility.errors import InvalidValueError
from eligibility.ops.backends import fused_rows, selection, triton
from tests.ops.triton_rows import DEVICE, error, grain, kernels, problem

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
Problem = dict[str, Tensor]
Loss = Callable[[Problem], Tensor]


def reinforce(p: Problem, **options: Any) -> Tensor:
    return el.reinforce_loss(p["logits"], p["action"], p["advantage"], **options)


def clipped(p: Problem, **options: Any) -> Tensor:
    return el.clipped_policy_loss(
        p["logits"], p["action"], p["advantage"], p["old_log_prob"], clip=(0.1, 0.4), **options
    )


def estimated(p: Problem, estimator: Any) -> Tensor:
    return clipped(
        p, ref_log_prob=p["ref_log_prob"], kl_coef=0.3, kl_estimator=estimator, weight=p["weight"]
    )


LOSSES: dict[str, Loss] = {
    "reinforce": lambda p: reinforce(p),
    "sum, entropy, weight, mask": lambda p: reinforce(
        p, reduction="sum", entropy_coef=0.1, weight=p["weight"], mask=p["mask"]
    ),
    "shaping and z-loss": lambda p: reinforce(
        p, temperature=0.7, softcap=5.0, z_loss_coef=0.01, ignore_index=2, weight=p["weight"]
    ),
    "none": lambda p: reinforce(p, reduction="none", entropy_coef=0.1, z_loss_coef=0.01),
    "clipped": lambda p: clipped(p),
    "k1": lambda p: estimated(p, "k1"),
    "k2": lambda p: estimated(p, "k2"),
    "k3": lambda p: estimated(p, "k3"),
    "exact": lambda p: clipped(
        p, ref_logits=p["ref_logits"], kl_coef=0.3, kl_estimator="exact", entropy_coef=0.1,
        weight=p["weight"], mask=p["mask"], temperature=1.5, softcap=5.0, ignore_index=1,
    ),
    "exact, none": lambda p: clipped(
        p, ref_logits=p["ref_logits"], kl_coef=0.3, kl_estimator="exact", reduction="none",
        mask=p["mask"], weight=p["weight"], z_loss_coef=0.01,
    ),
    "entropy": lambda p: el.categorical_entropy(p["logits"], mask=p["mask"], temperature=0.7),
    "kl": lambda p: el.categorical_kl(p["logits"], p["ref_logits"], mask=p["mask"]),
    "log_prob": lambda p: el.categorical_log_prob(
        p["logits"], p["action"], mask=p["mask"][0] | True, softcap=5.0, ignore_index=0
    ),
}  # fmt: skip


def run(loss: Loss, p: Problem, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The value, and the gradient at the logits for an upstream gradient that is not 1."""
    p = {name: x.to(dtype) if "logits" in name else x for name, x in p.items()}
    if dtype == torch.float64:
        p = {name: x.double() if x.is_floating_point() else x for name, x in p.items()}
    p["logits"].requires_grad_()
    value = loss(p)
    upstream = torch.arange(1.0, 1 + value.numel(), device=DEVICE, dtype=value.dtype).cos()
    (gradient,) = torch.autograd.grad(value, p["logits"], -3 * upstream.reshape(value.shape))
    return value.detach(), gradient


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_loss_and_gradient_are_as_close_to_float64_as_the_plain_ones(
    name: str, dtype: torch.dtype
) -> None:
    p = problem(7, 21, dtype, seed=3)
    exact, plain = run(LOSSES[name], p, torch.float64), run(LOSSES[name], p, dtype)
    calls = mock.Mock(side_effect=triton._kernels)
    with kernels(looped=dtype == torch.float32), mock.patch.object(triton, "_kernels", calls):
        ours = run(LOSSES[name], p, dtype)
    assert calls.called
    for a, b, truth in zip(ours, plain, exact, strict=True):
        assert a.dtype == b.dtype
        # The float32 numbers of a mean are themselves sums of terms that are rounded.
        assert error(a, truth) <= max(error(b, truth), grain(truth, a.dtype))


def test_one_kernel_gives_a_loss_and_its_gradient() -> None:
    p = problem(7, 21, torch.float32)
    names: list[str] = []
    module = mock.Mock()
    for name in ("rows_kernel", "gradient_kernel", "scale_kernel"):
        kernel = getattr(triton._kernels(), name)

        def launch(grid: Any, name: str = name, kernel: Any = kernel) -> Any:
            names.append(name)
            return kernel[grid]

        setattr(module, name, mock.MagicMock())
        getattr(module, name).__getitem__.side_effect = launch
    with kernels(), mock.patch.object(triton, "_kernels", return_value=module):
        run(LOSSES["exact"], p, torch.float32)
    assert names == ["rows_kernel", "scale_kernel"]


@pytest.mark.parametrize("name", ["sum, entropy, weight, mask", "exact", "none"])
def test_second_derivatives_and_transforms_are_those_of_the_composition(name: str) -> None:
    p = problem(4, 9, torch.float32)
    p["logits"] = p["logits"].masked_fill(p["logits"].isinf(), -5.0)
    loss = LOSSES[name]

    def of(logits: Tensor) -> Tensor:
        return loss(p | {"logits": logits}).sum()

    def twice() -> Tensor:
        logits = p["logits"].clone().requires_grad_()
        (first,) = torch.autograd.grad(of(logits), logits, create_graph=True)
        (second,) = torch.autograd.grad((first * p["ref_logits"]).sum(), logits)
        return second

    def again() -> Tensor:
        logits = p["logits"].clone().requires_grad_()
        value = of(logits)
        first = torch.autograd.grad(value, logits, retain_graph=True)[0].clone()
        return first - torch.autograd.grad(value, logits)[0]

    def forward() -> Tensor:
        return torch.func.jvp(of, (p["logits"],), (p["ref_logits"],))[1]

    def batched() -> Tensor:
        logits = p["logits"].clone().requires_grad_()
        upstream = torch.tensor([1.0, -2.0], device=DEVICE)
        return torch.autograd.grad(of(logits), logits, upstream, is_grads_batched=True)[0]

    plain = [twice(), torch.func.grad(of)(p["logits"]), forward(), batched()]
    with kernels():
        ours = [twice(), torch.func.grad(of)(p["logits"]), forward(), batched()]
        assert not again().any()
    for a, b in zip(ours, plain, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_gradient_takes_the_place_of_the_logits_whatever_is_in_the_loss() -> None:
    p = problem(6, 21, torch.bfloat16)
    source = p["logits"].masked_fill(p["logits"].isinf(), -5.0).requires_grad_()
    options: dict[str, Any] = {"temperature": 0.7, "softcap": 5.0, "z_loss_coef": 0.1}
    with kernels():
        logits = source * 2
        arrived: list[Tensor] = []
        logits.register_hook(arrived.append)
        loss = reinforce(p | {"logits": logits}, reuse_logits=True, **options)
        loss.backward(retain_graph=True)
        assert arrived[0].data_ptr() == logits.data_ptr()
        usual = source * 2
        expected = reinforce(p | {"logits": usual}, **options)
        (gradient,) = torch.autograd.grad(expected, usual)
        assert torch.equal(arrived[0], gradient)
        assert loss == expected
        with pytest.raises(InvalidValueError, match="the logits are gone"):
            loss.backward()


def test_kernels_leave_to_others_what_they_cannot_do() -> None:
    p = problem(3, 5, torch.float32)
    assert not fused_rows.serves(p["logits"].cpu())
    with kernels():
        assert fused_rows.serves(p["logits"])
        assert not fused_rows.serves(p["logits"].double())
        learned = p["ref_logits"].requires_grad_()
        el.categorical_kl(p["logits"], learned).sum().backward()
        assert learned.grad is not None
        with pytest.raises(InvalidValueError, match="a maximum of 5, expected indices in"):
            el.categorical_log_prob(p["logits"].cpu(), torch.tensor([0, 5, 1]))


def test_backends_say_whether_triton_serves_and_why_not() -> None:
    served = selection.describe()["cuda"]
    assert served.startswith(f"experimental Triton {triton.version()} kernels for float32")
    with mock.patch.object(triton, "find_spec", return_value=None):
        triton.unavailable.cache_clear()
        told, serves = selection.describe()["cuda"], triton.unavailable() is None
    triton.unavailable.cache_clear()
    assert told.endswith("(triton is not installed)")
    assert not serves


def philox(seed: int, column: int, row: int) -> int:
    """32 bits by Philox-4x32-10, written down from Salmon et al. 2011, figure 4 and table 2."""
    low = 0xFFFFFFFF
    counter = [column // 4, row & low, row >> 32, 0]
    key = [seed & low, seed >> 32 & low]
    for _ in range(10):
        first, second = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [
            second >> 32 ^ counter[1] ^ key[0],
            second & low,
            first >> 32 ^ counter[3] ^ key[1],
            first & low,
        ]
        key = [key[0] + 0x9E3779B9 & low, key[1] + 0xBB67AE85 & low]
    return counter[column % 4]


@pytest.mark.parametrize("looped", [False, True])
def test_sample_is_the_largest_of_the_logits_with_gumbel_noise_from_philox(looped: bool) -> None:
    p = problem(6, 45, torch.float32, scale=1.0)
    seed = -0x123456789ABCDEF
    with kernels(looped):
        rows = triton.Rows(p["logits"], p["action"], p["mask"], 0.7, 5.0)
        action, found = triton.sample(rows, torch.tensor([seed], device=DEVICE))
        expected = triton.statistics(triton.Rows(p["logits"], action, p["mask"], 0.7, 5.0))
    bits = np.array([[philox(seed & 2**64 - 1, k, n) for k in range(45)] for n in range(6)])
    noise = -np.log(-np.log((bits + 0.5) / 2**32))
    z = 5 * np.tanh(p["logits"].double().cpu().numpy() / 5) / 0.7
    z[~p["mask"].cpu().numpy() | np.isinf(p["logits"].cpu().numpy())] = -np.inf
    assert action.tolist() == (z + noise).argmax(1).tolist()
    torch.testing.assert_close(found.table[1:4], expected.table[1:4], rtol=0, atol=2e-6)


def test_noise_is_right_in_both_tails() -> None:
    """Where u is all but 1, 1 − u must keep its digits; where it is all but 0, u must."""
    kernel_module = triton._sampling()
    bits = torch.tensor([0, 1, 7, 2**16, 2**31, 2**32 - 2**16, 2**32 - 8, 2**32 - 1])
    exact = -torch.log(-torch.log((bits.double() + 0.5) / 2**32))
    out = torch.empty(8, device=DEVICE)
    with kernels():
        signed = torch.where(bits < 2**31, bits, bits - 2**32).to(torch.int32).to(DEVICE)
        kernel_module.gumbel_kernel[(1,)](signed, out, 8)
    torch.testing.assert_close(out.cpu().double(), exact, rtol=4e-7, atol=4e-7)


def test_samples_have_the_frequencies_of_the_policy_and_come_from_the_generator() -> None:
    count = 8000
    pi = torch.tensor([0.3, 0.0, 0.05, 0.45, 0.2])
    logits = pi.log().repeat(count, 1).to(DEVICE).requires_grad_()

    def draw(seed: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator(DEVICE).manual_seed(seed)
        return el.categorical_sample(logits, generator=generator)

    with kernels(rows=2048):
        action, log_prob = draw(0)
        repeated, others = draw(0)[0], draw(1)[0]
        (gradient,) = torch.autograd.grad(log_prob.sum(), logits)
    counts = torch.bincount(action.cpu(), minlength=5)
    assert counts[1] == 0
    legal = pi > 0
    assert chisquare(counts[legal], pi[legal].double() * count).pvalue > 1e-3
    assert torch.equal(action, repeated)
    assert not torch.equal(action, others)
    torch.testing.assert_close(log_prob.detach().cpu(), pi.log()[action.cpu()])
    y = torch.nn.functional.one_hot(action, 5)
    torch.testing.assert_close(gradient, y - pi.to(DEVICE).expand(count, 5))


def test_sampling_from_nan_or_from_nothing_is_an_error() -> None:
    with kernels():
        for row, got in (([0.0, torch.nan], "NaN"), ([-torch.inf, -torch.inf], "a row")):
            with pytest.raises(InvalidValueError, match=got):
                el.categorical_sample(torch.tensor([row], device=DEVICE))
