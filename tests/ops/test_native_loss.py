"""What the native kernel does beside the plain row: each against torch's operations and float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import eligibility as el
from eligibility.errors import InvalidTypeError, InvalidValueError, ShapeError
from eligibility.ops.backends import cpu, selection
from eligibility.ops.backends.row_task import RowTask

pytestmark = pytest.mark.skipif(not cpu.is_built(), reason="the native kernel was not built")
DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
UNIT = {torch.float32: 2.0**-23, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-10}


@pytest.fixture(params=["portable", "avx2", "avx512"])
def instruction_set(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Runs the test with each instruction set that this processor has."""
    name = str(request.param)
    if name not in cpu.INSTRUCTION_SETS:
        pytest.skip(f"this processor has no {name}")
    index = cpu.INSTRUCTION_SETS.index(name)
    monkeypatch.setattr(cpu, "_instruction_set", lambda _: index)
    return name


def problem(rows: int, categories: int, dtype: torch.dtype) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(rows * categories)
    logits = 3 * torch.randn((rows, categories), generator=generator)
    logits[:, 1:] = torch.where(
        torch.rand((rows, categories - 1), generator=generator) < 0.1, -torch.inf, logits[:, 1:]
    )
    mask = torch.rand((rows, categories), generator=generator) < 0.8
    mask[:, 0] = True
    legal = (mask & logits.isfinite()).float() + 1e-9 * mask
    action = torch.multinomial(legal, 1, generator=generator)[:, 0]
    advantage, weight, old = torch.randn((3, rows), generator=generator)
    weight = weight.abs()
    weight[rows // 2] = 0
    return {
        "logits": logits.to(dtype),
        "mask": mask,
        "action": action,
        "advantage": advantage.to(cpu.column_dtype(logits.to(dtype))),
        "weight": weight,
        "old": old - 2,
    }


def without_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "_library", None)
    monkeypatch.setattr(selection, "_SMALL_FOR_PLAIN", 1 << 60)


OPTIONS: list[dict[str, Any]] = [
    {"temperature": 0.7},
    {"softcap": 2.5},
    {"softcap": 30.0, "temperature": 1.3, "entropy_coef": 0.1},
    {"z_loss_coef": 0.05, "entropy_coef": 0.02},
    {"entropy_coef": 0.3, "reduction": "sum"},
]


def loss_and_gradient(
    given: dict[str, Tensor], masked: bool, dtype: torch.dtype, options: dict[str, Any]
) -> tuple[Tensor, Tensor]:
    z = given["logits"].to(dtype).requires_grad_()
    mask = given["mask"] if masked else None
    advantage, weight = given["advantage"].to(z.dtype), given["weight"].to(z.dtype)
    if dtype in UNIT:
        advantage, weight = given["advantage"].float(), given["weight"].float()
    if options.get("old"):
        more = {key: value for key, value in options.items() if key != "old"}
        old = given["old"].to(advantage.dtype)
        loss = el.clipped_policy_loss(
            z, given["action"], advantage, old, ref_log_prob=old, weight=weight, mask=mask, **more
        )
    else:
        loss = el.reinforce_loss(z, given["action"], advantage, mask=mask, weight=weight, **options)
    (gradient,) = torch.autograd.grad(loss, z)
    return loss.detach(), gradient


CLIPPED: list[dict[str, Any]] = [
    {"old": True, "clip": (0.1, 0.4)},
    *(
        {"old": True, "kl_coef": 0.3, "kl_estimator": name, "entropy_coef": 0.1}
        for name in ("k1", "k2", "k3")
    ),
]


@pytest.mark.parametrize("categories", [5, 67])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("options", OPTIONS + CLIPPED)
def test_error_is_at_most_that_of_torch_operations_in_the_same_dtype(
    instruction_set: str,
    categories: int,
    dtype: torch.dtype,
    masked: bool,
    options: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = problem(9, categories, dtype)
    native = loss_and_gradient(given, masked, dtype, options)
    without_library(monkeypatch)
    plain = loss_and_gradient(given, masked, dtype, options)
    exact = loss_and_gradient(given, masked, torch.float64, options)
    # The loss is a sum of terms of size 1 or so, each rounded, whatever they sum up to.
    for ours, theirs, truth, size in zip(native, plain, exact, (1.0, 1e-3), strict=True):
        assert ours.dtype == theirs.dtype
        if dtype == torch.float64:  # two routes that round differently
            torch.testing.assert_close(ours, truth, rtol=1e-12, atol=1e-13)
            continue
        # As in test_cpu.py: e^d, its coefficient, their product and the sum, each rounded; the
        # logits of the soft-cap and the slope of the ratio add two more.
        grain = 6 * UNIT[ours.dtype] * max(size, float(truth.abs().max()))
        error = float((ours.double() - truth).abs().max())
        assert error <= max(float((theirs.double() - truth).abs().max()), grain)


def test_float64_is_right_to_its_last_digits(instruction_set: str) -> None:
    given = problem(40, 300, torch.float64)
    z = given["logits"]
    found = cpu.run(
        RowTask(z, given["action"]),
        cpu.linear_loss(given["advantage"], None),
        log_prob=True,
        entropy=True,
        log_normalizer=True,
        gradient=True,
    )
    wide = z.numpy().astype(np.longdouble)
    log_normalizer = np.log(np.exp(wide).sum(-1))
    log_pmf = wide - log_normalizer[:, None]
    pmf = np.exp(log_pmf)
    entropy = -np.where(pmf > 0, pmf * np.where(pmf > 0, log_pmf, 0), 0).sum(-1)
    rows = np.arange(40)
    gradient = -pmf
    gradient[rows, given["action"].numpy()] += 1
    gradient *= given["advantage"].numpy()[:, None]
    wanted = (log_pmf[rows, given["action"].numpy()], entropy, log_normalizer, gradient)
    got = (found.log_prob, found.entropy, found.log_normalizer, found.gradient)
    for ours, truth in zip(got, wanted, strict=True):
        assert ours is not None
        finite = np.isfinite(truth)
        scale = np.abs(truth[finite]).max()
        error = np.abs(ours.numpy()[finite].astype(np.longdouble) - truth[finite]).max()
        assert error <= 4 * 2.0**-53 * max(1.0, float(scale))


@pytest.mark.parametrize("bits", range(0, 1 << 16, 1 << 12))
def test_every_float16_is_read_and_written_as_torch_does(instruction_set: str, bits: int) -> None:
    # A row of one category under a temperature of 1 has the log-normaliser that its logit is.
    codes = torch.arange(bits, bits + (1 << 12), dtype=torch.int32).to(torch.int16)
    halves = codes.view(torch.float16)
    finite = halves[halves.isfinite()].unsqueeze(1)
    found = cpu.run(RowTask(finite.contiguous()), log_normalizer=True)
    assert found.log_normalizer is not None
    assert torch.equal(found.log_normalizer, finite.squeeze(1).float())


def test_float16_gradients_are_rounded_to_nearest(instruction_set: str) -> None:
    # With two equal logits the gradient is A/2 and −A/2, exactly: what is left is the rounding.
    generator = torch.Generator().manual_seed(0)
    exponents = torch.randint(-26, 17, (4096,), generator=generator)
    advantage = torch.ldexp(torch.rand(4096, generator=generator) + 1, exponents)
    advantage[:3] = torch.tensor([torch.inf, torch.nan, 131008.0])
    found = cpu.run(
        RowTask(torch.zeros(4096, 2, dtype=torch.float16), torch.zeros(4096).long()),
        cpu.linear_loss(advantage, None),
        gradient=True,
    )
    assert found.gradient is not None
    torch.testing.assert_close(
        found.gradient[:, 0], (advantage / 2).half(), rtol=0, atol=0, equal_nan=True
    )


def test_softcap_is_accurate_near_zero_too(instruction_set: str) -> None:
    z = torch.cat([torch.logspace(-6, 1.5, 200), -torch.logspace(-6, 1.5, 200)]).reshape(8, 50)
    found = cpu.run(RowTask(z, softcap=3.0), log_normalizer=True)
    exact = torch.logsumexp(3 * torch.tanh(z.double() / 3), -1)
    assert found.log_normalizer is not None
    assert float((found.log_normalizer - exact).abs().max()) < 4 * 2.0**-23
    one = cpu.run(RowTask(z.reshape(-1, 1), softcap=3.0), log_normalizer=True)
    exact = 3 * torch.tanh(z.double().reshape(-1) / 3)
    assert one.log_normalizer is not None
    assert float(((one.log_normalizer - exact) / exact).abs().max()) < 4 * 2.0**-23


@pytest.mark.parametrize("path", ["native", "composition"])
@pytest.mark.parametrize("samples", [(1,), (2,), (5,), (2, 3)])
@pytest.mark.parametrize("masked", [False, True])
def test_samples_of_a_row_are_the_row_repeated(
    path: str, samples: tuple[int, ...], masked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selection, "_SMALL_FOR_NATIVE", 0)
    if path == "composition":
        without_library(monkeypatch)
    generator = torch.Generator().manual_seed(1)
    z = torch.randn(2, 3, 4, dtype=torch.float64, generator=generator, requires_grad=True)
    mask = torch.tensor([True, True, True, False]) if masked else None
    shape = (*samples, 2, 3)
    action = torch.randint(3, shape, generator=generator)
    advantage, weight = torch.randn((2, *shape), dtype=torch.float64, generator=generator)
    options = {"mask": mask, "entropy_coef": 0.3, "z_loss_coef": 0.1, "weight": weight.abs()}
    repeated = z.expand(*shape, 4)
    for reduction in ("mean", "sum", "none", "sequence"):
        ours = el.reinforce_loss(z, action, advantage, reduction=reduction, **options)
        wanted = el.reinforce_loss(repeated, action, advantage, reduction=reduction, **options)
        torch.testing.assert_close(ours, wanted)
        upstream = torch.randn(ours.shape, dtype=torch.float64, generator=generator)
        pair = [torch.autograd.grad(loss, z, upstream)[0] for loss in (ours, wanted)]
        torch.testing.assert_close(*pair)
    ours, wanted = (
        el.clipped_policy_loss(logits, action, advantage, advantage - 2, mask=mask)
        for logits in (z, repeated)
    )
    torch.testing.assert_close(*(torch.autograd.grad(loss, z)[0] for loss in (ours, wanted)))
    statistics = el.categorical_statistics(z, action, mask=mask)
    assert statistics.log_prob.shape == shape
    assert statistics.entropy.shape == (2, 3)
    log_prob = el.categorical_log_prob(z, action, mask=mask)
    wanted = el.categorical_log_prob(repeated, action, mask=mask)
    torch.testing.assert_close(log_prob, wanted)
    assert torch.autograd.gradcheck(lambda z: el.categorical_log_prob(z, action, mask=mask), z)
    assert torch.autograd.gradgradcheck(
        lambda z: el.reinforce_loss(z, action, advantage, **options), z
    )


@pytest.mark.parametrize("path", ["native", "composition"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_counts_are_the_sum_of_their_draws(
    path: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selection, "_SMALL_FOR_NATIVE", 0)
    if path == "composition":
        without_library(monkeypatch)
    generator = torch.Generator().manual_seed(2)
    z = torch.randn(6, 9, generator=generator).to(dtype)
    z[:, 8] = -torch.inf
    z.requires_grad_()
    draws = torch.randint(8, (5, 6), generator=generator)
    counts = torch.nn.functional.one_hot(draws, 9).sum(0)
    tolerance = {"rtol": 1e-5, "atol": 1e-5} if dtype != torch.float64 else {}
    ours = el.categorical_log_prob(z, None, counts=counts)
    wanted = el.categorical_log_prob(z, draws).sum(0)
    torch.testing.assert_close(ours, wanted, **tolerance)
    advantage = torch.randn(6, generator=generator).to(ours.dtype)
    for options in ({}, {"entropy_coef": 0.2, "temperature": 0.8, "softcap": 5.0}):
        loss = el.reinforce_loss(z, None, advantage, counts=counts.double(), **options)
        entropy = el.categorical_entropy(
            z, **{key: value for key, value in options.items() if key != "entropy_coef"}
        )
        chosen = {key: value for key, value in options.items() if key != "entropy_coef"}
        each = el.categorical_log_prob(z, draws, **chosen).sum(0)
        wanted = -(advantage * each + options.get("entropy_coef", 0.0) * entropy).mean()
        torch.testing.assert_close(loss, wanted, **tolerance)
        pair = [torch.autograd.grad(x, z)[0] for x in (loss, wanted)]
        loose = {"rtol": 2e-2, "atol": 1e-2} if dtype in (torch.bfloat16, torch.float16) else {}
        torch.testing.assert_close(*pair, **(loose or tolerance))


def test_the_eligibility_of_counts_is_y_minus_n_pi() -> None:
    z = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    counts = torch.tensor([[2, 0, 1, 0], [0, 0, 0, 0], [0, 5, 0, 0]])
    el.categorical_log_prob(z, None, counts=counts).sum().backward()
    expected = counts - counts.sum(-1, keepdim=True) * z.detach().softmax(-1)
    torch.testing.assert_close(z.grad, expected)
    assert torch.autograd.gradgradcheck(
        lambda z: el.categorical_log_prob(z, None, counts=counts), z
    )


def test_counts_under_a_mask() -> None:
    z, mask = torch.zeros(2, 3, requires_grad=True), torch.tensor([True, True, False])
    fine = torch.tensor([[1.0, 2.0, 0.0], [0.0, 0.0, 0.0]])
    loss = el.reinforce_loss(z, None, torch.ones(2), counts=fine, mask=mask)
    torch.testing.assert_close(
        loss, torch.tensor(3 * 0.5).log() * 0 + 1.5 * torch.tensor(2.0).log()
    )
    wrong = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 4.0]])
    with pytest.raises(InvalidValueError, match="the mask forbids"):
        el.reinforce_loss(z, None, torch.ones(2), counts=wrong, mask=mask)
    with pytest.raises(InvalidValueError, match="the mask forbids"):
        el.categorical_log_prob(z, None, counts=wrong, mask=mask)
    weight = torch.tensor([1.0, 0.0])  # what does not count may be illegal
    assert el.reinforce_loss(
        z, None, torch.ones(2), counts=wrong, mask=mask, weight=weight
    ).isfinite()


@pytest.mark.parametrize(
    ("action", "counts", "options", "error", "message"),
    [
        (None, None, {}, InvalidTypeError, "`action`: got None, without counts"),
        (
            torch.zeros(2).long(),
            torch.ones(2, 3),
            {},
            InvalidTypeError,
            "both counts and an action",
        ),
        (None, torch.ones(2), {}, ShapeError, r"`counts`: got shape \[2\]"),
        (None, -torch.ones(2, 3), {}, InvalidValueError, "`counts`: got a minimum of -1"),
        (None, torch.full((2, 3), torch.nan), {}, InvalidValueError, "`counts`"),
        (None, torch.ones(2, 3), {"ignore_index": -1}, InvalidTypeError, "pass a weight of 0"),
        (torch.zeros(5, 3).long(), None, {}, ShapeError, "axes for samples may stand in front"),
        (torch.full((4, 2), 3), None, {}, InvalidValueError, "a maximum of 3"),
    ],
)
def test_mistakes_with_counts_and_samples_say_what_to_do(
    action: Tensor | None,
    counts: Tensor | None,
    options: dict[str, Any],
    error: type[Exception],
    message: str,
) -> None:
    z = torch.zeros(2, 3, requires_grad=True)
    shape = (2,) if action is None else action.shape
    with pytest.raises(error, match=message):
        el.reinforce_loss(z, action, torch.ones(shape), counts=counts, **options)
    with pytest.raises(error, match=message):
        el.categorical_log_prob(z, action, counts=counts, **options)


def test_what_is_impossible_receives_zero_without_a_sign(instruction_set: str) -> None:
    given = problem(8, 37, torch.float32)
    for entropies in (None, given["weight"]):
        found = cpu.run(
            RowTask(given["logits"], given["action"], mask=given["mask"]),
            cpu.linear_loss(given["advantage"], entropies),
            gradient=True,
        )
        assert found.gradient is not None
        impossible = found.gradient[~given["mask"] | given["logits"].isinf()]
        assert bool((impossible == 0).all())
        assert not bool(impossible.signbit().any())


def test_the_short_way_gives_what_the_long_way_gives() -> None:
    generator = torch.Generator().manual_seed(4)
    for dtype in DTYPES:
        z = torch.randn(8, 3, 5, generator=generator).to(dtype).requires_grad_()
        action = torch.randint(5, (8, 3), generator=generator)
        advantage = torch.randn(8, 3, generator=generator).to(cpu.column_dtype(z))
        short = el.reinforce_loss(z, action, advantage, entropy_coef=0.1)
        long = el.reinforce_loss(
            z, action, advantage, entropy_coef=0.1, weight=torch.ones_like(advantage)
        )
        assert short.grad_fn is not None
        assert long.grad_fn is not None
        assert short.grad_fn.name() != long.grad_fn.name()
        assert torch.equal(short, long)
        upstream = torch.tensor(-0.5, dtype=short.dtype)
        pair = [torch.autograd.grad(x, z, upstream)[0] for x in (short, long)]
        assert torch.equal(*pair)


def test_losses_keep_no_memory_alive_once_the_graph_is_gone() -> None:
    z = torch.randn(64, 2000, requires_grad=True)
    logits = z * 1
    action, advantage = torch.randint(2000, (64,)), torch.randn(64)
    losses = [
        el.reinforce_loss(logits, action, advantage, weight=torch.ones(64)),
        el.clipped_policy_loss(logits, action, advantage, advantage),
    ]
    sum(losses, torch.zeros(())).backward()
    import gc
    import weakref

    gone = weakref.ref(logits)
    del logits
    gc.collect()
    assert gone() is None
    assert len(losses) == 2
