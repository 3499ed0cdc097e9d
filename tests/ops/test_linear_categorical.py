"""Values and gradients of the linear operations against their definition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

import eligibility as el
from eligibility.ops.backends import cpu
from eligibility.ops.linear import chunk, sweep
from eligibility.ops.linear_categorical import LinearStatistics
from tests.ops.linear_definition import Case, D, N, V, assert_same, definition, gradients

VARIANTS: dict[str, Callable[[Case], dict[str, Any]]] = {
    "bare": lambda case: {},
    "bias": lambda case: {"bias": case.bias},
    "temperature": lambda case: {"temperature": 0.7},
    "softcap": lambda case: {"softcap": 2.5},
    "mask": lambda case: {"mask": case.mask()},
    "shared mask": lambda case: {"mask": case.mask().any(0)},
    "everything": lambda case: {
        "bias": case.bias,
        "temperature": 1.3,
        "softcap": 2.5,
        "mask": case.mask(),
    },
}


@pytest.fixture(params=VARIANTS)
def variant(request: pytest.FixtureRequest) -> Callable[[Case], dict[str, Any]]:
    return VARIANTS[request.param]


@pytest.fixture(params=["one chunk", "many chunks"])
def _chunks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of 4 rows, blocks of 2, slabs of 5: nothing divides anything."""
    if request.param == "many chunks":
        monkeypatch.setattr(sweep, "_CHUNK_BYTES", 4 * V * 8)
        monkeypatch.setattr(sweep, "_CHUNK_SHARE", 1 << 30)
        monkeypatch.setattr(chunk, "_BLOCK_ELEMENTS", 2 * V)
        monkeypatch.setattr(sweep, "_SLAB_BYTES", 5 * D * 8)
        monkeypatch.setattr(sweep, "_TILE_ROWS", 3)


@pytest.mark.usefixtures("_chunks")
def test_statistics_and_their_gradients_equal_the_definition(
    variant: Callable[[Case], dict[str, Any]],
) -> None:
    case = Case(0)
    options = variant(case)
    upstream = [case.normal(N) for _ in range(3)]
    inputs = [case.hidden, case.weight] + ([case.bias] if "bias" in options else [])

    def run(function: Callable[..., LinearStatistics]) -> tuple[Any, Any]:
        result = function(*case.inputs, **options)
        parts = (result.log_prob, result.entropy, result.log_normalizer)
        total = sum((part * g).sum() for part, g in zip(parts, upstream, strict=True))
        return parts, gradients(total, *inputs)

    assert_same(run(el.linear_statistics), run(definition))


@pytest.mark.usefixtures("_chunks")
def test_reinforce_loss_and_its_gradients_equal_the_definition(
    variant: Callable[[Case], dict[str, Any]],
) -> None:
    case = Case(1)
    options = variant(case)
    weights = torch.rand(N, generator=case.generator, dtype=torch.float64)
    inputs = [case.hidden, case.weight] + ([case.bias] if "bias" in options else [])
    found = el.linear_reinforce_loss(
        *case.inputs, case.advantage, token_weight=weights, entropy_coef=0.3, **options
    )
    result = definition(*case.inputs, **options)
    wanted = -(weights * (case.advantage * result.log_prob + 0.3 * result.entropy)).mean()
    assert_same(found, wanted)
    assert_same(gradients(2.5 * found, *inputs), gradients(2.5 * wanted, *inputs))


@pytest.mark.usefixtures("_chunks")
@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("entropy_coef", [0.0, 0.2])
def test_z_loss_and_its_gradients_equal_the_definition(
    variant: Callable[[Case], dict[str, Any]],
    entropy_coef: float,
    native: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not native:
        monkeypatch.setattr(cpu, "_library", None)
    case = Case(21)
    options = variant(case)
    weights = torch.rand(N, generator=case.generator, dtype=torch.float64)
    weights[4] = 0.0
    case.advantage[5] = 0.0  # such a token has a z-loss all the same
    inputs = [case.hidden, case.weight] + ([case.bias] if "bias" in options else [])
    now = definition(*case.inputs, **options)
    coefficients = {"token_weight": weights, "entropy_coef": entropy_coef, "z_loss_coef": 0.1}
    extra = 0.1 * now.log_normalizer**2 - entropy_coef * now.entropy
    old = now.log_prob.detach() + 0.4 * case.normal(N)
    ratio = (now.log_prob - old).exp()
    clipped = torch.minimum(ratio * case.advantage, ratio.clamp(0.8, 1.2) * case.advantage)
    for reduction in ("mean", "none"):
        chosen = {**options, **coefficients, "reduction": reduction}
        losses = (
            el.linear_reinforce_loss(*case.inputs, case.advantage, **chosen),
            el.linear_clipped_policy_loss(*case.inputs, case.advantage, old, **chosen),
        )
        for found, surrogate in zip(losses, (case.advantage * now.log_prob, clipped), strict=True):
            wanted = weights * (extra - surrogate)
            wanted = wanted.mean() if reduction == "mean" else wanted
            assert_same(found, wanted)
            upstream = torch.rand(found.shape, generator=case.generator, dtype=torch.float64)
            pair = [
                torch.autograd.grad(loss, inputs, upstream, retain_graph=True)
                for loss in (found, wanted)
            ]
            assert_same(*pair)


@pytest.mark.usefixtures("_chunks")
@pytest.mark.parametrize("kl_estimator", ["k1", "k2", "k3"])
@pytest.mark.parametrize("entropy_coef", [0.0, 0.2])
def test_clipped_loss_and_its_gradients_equal_the_definition(
    kl_estimator: str, entropy_coef: float
) -> None:
    case = Case(2)
    now = definition(*case.inputs)
    old = now.log_prob.detach() + 0.4 * case.normal(N)
    reference = now.log_prob.detach() + 0.4 * case.normal(N)
    ratio = (now.log_prob - old).exp()
    assert bool((ratio < 0.9).any())
    assert bool((ratio > 1.3).any())
    found = el.linear_clipped_policy_loss(
        *case.inputs,
        case.advantage,
        old,
        clip=(0.1, 0.3),
        ref_log_prob=reference,
        kl_coef=0.05,
        kl_estimator=kl_estimator,
        entropy_coef=entropy_coef,
        reduction="sum",
    )
    surrogate = torch.minimum(ratio * case.advantage, torch.clamp(ratio, 0.9, 1.3) * case.advantage)
    d = now.log_prob - reference
    kl = {"k1": d, "k2": d**2 / 2, "k3": torch.exp(-d) - 1 + d}[kl_estimator]
    wanted = (-surrogate - entropy_coef * now.entropy + 0.05 * kl).sum()
    assert_same(found, wanted)
    inputs = (case.hidden, case.weight)
    assert_same(gradients(0.3 * found, *inputs), gradients(0.3 * wanted, *inputs))


def test_every_reduction_gives_the_same_gradients_of_the_sum() -> None:
    case = Case(3)
    losses = [
        el.linear_reinforce_loss(*case.inputs, case.advantage, entropy_coef=0.1, reduction=how)
        for how in ("none", "sum", "mean")
    ]
    assert losses[0].shape == (N,)
    each = [
        gradients(scale * loss.sum(), case.hidden)
        for scale, loss in zip((1, 1, N), losses, strict=True)
    ]
    assert_same(each[1], each[0])
    assert_same(each[2], each[0])


def test_a_sequence_is_the_sum_over_the_last_axis() -> None:
    case = Case(25, rows=6)
    shape = (2, 3)
    hidden, token = case.hidden.reshape(*shape, D), case.token.reshape(shape)
    advantage = case.advantage.reshape(shape)
    each, sequences = (
        el.linear_reinforce_loss(hidden, case.weight, token, advantage, reduction=how)
        for how in ("none", "sequence")
    )
    assert_same(sequences, each.sum(-1))


def test_the_mean_is_over_tokens_that_are_not_ignored() -> None:
    case = Case(4)
    token = case.token.clone()
    token[::3] = -100
    left = token != -100
    found = el.linear_reinforce_loss(case.hidden, case.weight, token, case.advantage)
    wanted = el.linear_reinforce_loss(
        case.hidden[left], case.weight, token[left], case.advantage[left]
    )
    assert_same(found, wanted)
    assert_same(
        gradients(found, case.hidden, case.weight), gradients(wanted, case.hidden, case.weight)
    )


def test_rows_that_do_not_count_are_never_read() -> None:
    case = Case(5)
    token, advantage, weights = case.token.clone(), case.advantage.clone(), torch.ones(N).double()
    token[0], advantage[1], weights[2] = -100, 0.0, 0.0
    hidden = case.hidden.detach().clone()
    hidden[:3] = float("nan")
    hidden.requires_grad_()
    loss = el.linear_reinforce_loss(hidden, case.weight, token, advantage, token_weight=weights)
    d_hidden, d_weight = gradients(loss, hidden, case.weight)
    assert bool(loss.isfinite())
    assert bool((d_hidden[:3] == 0).all())
    assert bool(d_weight.isfinite().all())


@pytest.mark.usefixtures("_chunks")
def test_clipped_tokens_leave_the_products_and_the_others_are_unchanged() -> None:
    case = Case(6)
    now = definition(*case.inputs).log_prob.detach()
    clipped = torch.arange(N) % 3 != 0
    advantage = case.advantage.abs()
    old = torch.where(clipped, now - 1.0, now)  # a ratio of e, far beyond 1.2
    loss = el.linear_clipped_policy_loss(*case.inputs, advantage, old, reduction="sum")
    kept = ~clipped
    wanted = -(advantage[kept] * (definition(*case.inputs).log_prob[kept] - now[kept]).exp()).sum()
    assert_same(
        gradients(loss, case.hidden, case.weight), gradients(wanted, case.hidden, case.weight)
    )
    loss = el.linear_clipped_policy_loss(*case.inputs, advantage, old)
    assert bool((gradients(loss, case.hidden)[0][clipped] == 0).all())


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_a_sparse_mask_means_the_same_as_the_dense_one() -> None:
    case = Case(7)
    mask = case.mask()
    results = [
        el.linear_statistics(*case.inputs, mask=form)
        for form in (mask, mask.double().to_sparse_csr())
    ]
    assert_same(*(result.log_prob for result in results))
    assert_same(*(gradients(result.entropy.sum(), case.weight) for result in results))


@pytest.mark.parametrize("softcap", [None, 3.0])
@pytest.mark.parametrize("native", [True, False])
def test_an_infinite_bias_forbids_a_token(
    softcap: float | None, native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not native:
        monkeypatch.setattr(cpu, "_library", None)
    case = Case(8)
    bias = case.bias.detach().clone()
    allowed = torch.ones(V, dtype=torch.bool)
    allowed[torch.tensor([1, 5, 30])] = False
    token = torch.where(allowed[case.token], case.token, 0)
    bias[~allowed] = float("-inf")
    bias.requires_grad_()
    found = el.linear_statistics(case.hidden, case.weight, token, bias=bias, softcap=softcap)
    wanted = definition(
        case.hidden,
        case.weight,
        token,
        bias=case.bias,
        mask=allowed.expand(N, V),
        softcap=softcap,
    )
    assert_same(found.entropy, wanted.entropy)
    total = found.log_prob.sum() + found.entropy.sum()
    d_bias, d_weight = gradients(total, bias, case.weight)
    assert bool((d_bias[~allowed] == 0).all())
    assert bool(d_weight.isfinite().all())
    impossible = el.linear_log_prob(
        case.hidden, case.weight, torch.ones(N, dtype=torch.long), bias=bias
    )
    assert bool((impossible == float("-inf")).all())


def test_an_advantage_that_requires_gradients_receives_them() -> None:
    case = Case(14)
    advantage = case.advantage.clone().requires_grad_()
    loss = el.linear_reinforce_loss(*case.inputs, advantage, reduction="sum")
    assert_same(gradients(loss, advantage)[0], -definition(*case.inputs).log_prob.detach())


def test_frozen_inputs_get_no_gradient_and_change_no_other() -> None:
    case = Case(15)
    wanted = gradients(
        el.linear_reinforce_loss(*case.inputs, case.advantage), case.hidden, case.weight
    )
    for frozen in (0, 1):
        inputs = [case.hidden.detach().clone(), case.weight.detach().clone()]
        inputs[1 - frozen].requires_grad_()
        el.linear_reinforce_loss(*inputs, case.token, case.advantage).backward()
        assert inputs[frozen].grad is None
        assert_same(inputs[1 - frozen].grad, wanted[1 - frozen])


def test_no_grad_and_inference_mode_give_the_same_loss() -> None:
    case = Case(16)
    wanted = el.linear_reinforce_loss(*case.inputs, case.advantage)
    for mode in (torch.no_grad(), torch.inference_mode()):
        with mode:
            found = el.linear_reinforce_loss(*case.inputs, case.advantage)
        assert not found.requires_grad
        assert_same(found, wanted.detach())


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.t().contiguous().t(),
        lambda x: torch.stack([x, x], -1)[..., 0],
        lambda x: torch.cat([x.new_zeros(1), x.reshape(-1)])[1:].view(x.shape),
    ],
    ids=["transposed", "strided", "misaligned"],
)
def test_layouts_do_not_matter_and_inputs_stay_untouched(
    view: Callable[[Tensor], Tensor],
) -> None:
    case = Case(17)
    wanted = gradients(
        el.linear_reinforce_loss(*case.inputs, case.advantage), case.hidden, case.weight
    )
    hidden, weight = (view(x.detach()).requires_grad_() for x in (case.hidden, case.weight))
    before = [hidden.detach().clone(), weight.detach().clone(), case.token.clone()]
    loss = el.linear_reinforce_loss(hidden, weight, case.token, case.advantage)
    assert_same(gradients(loss, hidden, weight), wanted)
    assert_same([hidden.detach(), weight.detach(), case.token], before, rtol=0, atol=0)


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(0, 9),
    vocabulary=st.integers(1, 9),
    features=st.integers(1, 5),
    seed=st.integers(0, 2**31),
)
def test_any_size_equals_the_definition(
    rows: int, vocabulary: int, features: int, seed: int
) -> None:
    case = Case(seed, rows, vocabulary, features)
    found = el.linear_reinforce_loss(*case.inputs, case.advantage, entropy_coef=0.2)
    result = definition(*case.inputs)
    wanted = -(case.advantage * result.log_prob + 0.2 * result.entropy).sum() / max(1, rows)
    assert_same(found, wanted)
    inputs = (case.hidden, case.weight)
    assert_same(gradients(found, *inputs), gradients(wanted, *inputs))


def test_leading_axes_are_kept() -> None:
    case = Case(18, rows=24)
    hidden, token = case.hidden.reshape(2, 3, 4, D), case.token.reshape(2, 3, 4)
    found = el.linear_log_prob(hidden, case.weight, token, mask=torch.ones(2, 3, 4, V) > 0)
    assert_same(found, definition(*case.inputs).log_prob.reshape(2, 3, 4))


def test_results_are_the_same_bits_every_time() -> None:
    case = Case(19)
    runs = [
        gradients(el.linear_reinforce_loss(*case.inputs, case.advantage), case.hidden, case.weight)
        for _ in range(2)
    ]
    assert_same(runs[0], runs[1], rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_scratch_memory_is_written_before_it_is_read(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "_CHUNK_BYTES", 4 * V * dtype.itemsize)
    monkeypatch.setattr(sweep, "_CHUNK_SHARE", 1 << 30)
    case = Case(20)
    hidden, weight = (x.detach().to(dtype).requires_grad_() for x in case.inputs[:2])
    given = (hidden, weight, case.token, case.advantage)
    wanted = gradients(el.linear_reinforce_loss(*given), hidden, weight)
    torch.use_deterministic_algorithms(True)
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    try:  # in this mode torch fills every new tensor with NaN
        assert bool(torch.empty(3).isnan().all())
        loss = el.linear_reinforce_loss(*given)
        assert_same(gradients(loss, hidden, weight), wanted, rtol=0, atol=0)
    finally:
        torch.use_deterministic_algorithms(False)


def test_autocast_computes_in_its_dtype_and_returns_gradients_in_the_inputs() -> None:
    case = Case(21)
    hidden = case.hidden.detach().float().requires_grad_()
    weight = case.weight.detach().float().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        loss = el.linear_reinforce_loss(hidden, weight, case.token, case.advantage)
    found = gradients(loss, hidden, weight)
    half = [x.detach().bfloat16().requires_grad_() for x in (hidden, weight)]
    wanted = gradients(el.linear_reinforce_loss(*half, case.token, case.advantage), *half)
    assert [part.dtype for part in found] == [torch.float32] * 2
    assert_same(found, tuple(part.float() for part in wanted), rtol=0, atol=0)
