"""Values, gradients and higher derivatives of the linear operations against their definition."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

import eligibility as el
from eligibility.errors import InvalidTypeError, InvalidValueError, ShapeError
from eligibility.ops import _linear_rows, _linear_sweep
from eligibility.ops.linear_categorical import LinearStatistics

# Forward-mode differentiation in torch 2.13 compiles its decompositions with torch.jit.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")

N, V, D = 23, 37, 8


def definition(
    hidden: Tensor,
    weight: Tensor,
    token: Tensor,
    *,
    bias: Tensor | None = None,
    temperature: float = 1.0,
    softcap: float | None = None,
    mask: Tensor | None = None,
) -> LinearStatistics:
    """Written out here a second time: the logits, whole, and torch's own softmax."""
    z = torch.nn.functional.linear(hidden, weight, bias)
    if softcap is not None:
        z = softcap * torch.tanh(z / softcap)
    z = z / temperature
    if mask is not None:
        z = z.masked_fill(~mask, float("-inf"))
    log_probs = z.log_softmax(-1)
    entropy = -(log_probs.exp() * log_probs.masked_fill(log_probs.isinf(), 0.0)).sum(-1)
    log_prob = log_probs.gather(-1, token.unsqueeze(-1)).squeeze(-1)
    return LinearStatistics(log_prob, entropy, z.logsumexp(-1))


class Case:
    """Random inputs in float64, and the same in another dtype."""

    def __init__(self, seed: int, rows: int = N, vocabulary: int = V, features: int = D) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.hidden = self.normal(rows, features).requires_grad_()
        self.weight = self.normal(vocabulary, features).requires_grad_()
        self.bias = self.normal(vocabulary).requires_grad_()
        self.token = torch.randint(vocabulary, (rows,), generator=self.generator)
        self.advantage = self.normal(rows)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator, dtype=torch.float64)

    def mask(self) -> Tensor:
        allowed = torch.rand(len(self.token), len(self.weight), generator=self.generator) < 0.6
        return allowed.scatter_(1, self.token.unsqueeze(1), True)

    @property
    def inputs(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.hidden, self.weight, self.token


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
        monkeypatch.setattr(_linear_sweep, "_CHUNK_BYTES", 4 * V * 8)
        monkeypatch.setattr(_linear_sweep, "_CHUNK_SHARE", 1 << 30)
        monkeypatch.setattr(_linear_rows, "_BLOCK_ELEMENTS", 2 * V)
        monkeypatch.setattr(_linear_sweep, "_SLAB_BYTES", 5 * D * 8)
        monkeypatch.setattr(_linear_sweep, "_TILE_ROWS", 3)


def gradients(scalar: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(scalar, inputs)


def assert_same(found: Any, wanted: Any, **tolerance: float) -> None:
    torch.testing.assert_close(found, wanted, **(tolerance or {"rtol": 1e-10, "atol": 1e-12}))


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


def test_an_infinite_bias_forbids_a_token() -> None:
    case = Case(8)
    bias = case.bias.detach().clone()
    allowed = torch.ones(V, dtype=torch.bool)
    allowed[torch.tensor([1, 5, 30])] = False
    token = torch.where(allowed[case.token], case.token, 0)
    bias[~allowed] = float("-inf")
    bias.requires_grad_()
    found = el.linear_statistics(case.hidden, case.weight, token, bias=bias)
    wanted = definition(case.hidden, case.weight, token, bias=case.bias, mask=allowed.expand(N, V))
    assert_same(found.entropy, wanted.entropy)
    total = found.log_prob.sum() + found.entropy.sum()
    d_bias, d_weight = gradients(total, bias, case.weight)
    assert bool((d_bias[~allowed] == 0).all())
    assert bool(d_weight.isfinite().all())
    impossible = el.linear_log_prob(
        case.hidden, case.weight, torch.ones(N, dtype=torch.long), bias=bias
    )
    assert bool((impossible == float("-inf")).all())


def test_second_derivatives_equal_those_of_the_definition() -> None:
    case = Case(9, rows=4, vocabulary=5, features=3)
    direction = case.normal(4, 3)

    def hessian_vector(loss: Tensor) -> tuple[Tensor, ...]:
        (first,) = torch.autograd.grad(loss, case.hidden, create_graph=True)
        return gradients((first * direction).sum(), case.hidden, case.weight)

    result = definition(*case.inputs)
    loss = -(case.advantage * result.log_prob + 0.1 * result.entropy)
    wanted = hessian_vector(loss.sum())
    for reduction in ("sum", "none"):
        found = el.linear_reinforce_loss(
            *case.inputs, case.advantage, entropy_coef=0.1, reduction=reduction
        )
        assert_same(hessian_vector(found.sum()), wanted)


def test_gradgradcheck() -> None:
    case = Case(10, rows=3, vocabulary=4, features=2)

    def function(hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        result = el.linear_statistics(hidden, weight, case.token, bias=bias, softcap=3.0)
        return result.log_prob + 0.5 * result.entropy + 0.1 * result.log_normalizer

    assert torch.autograd.gradcheck(function, (case.hidden, case.weight, case.bias))
    assert torch.autograd.gradgradcheck(function, (case.hidden, case.weight, case.bias))


def test_transforms_of_torch_func_equal_those_of_the_definition() -> None:
    case = Case(11, rows=4, vocabulary=5, features=3)
    hidden, weight = case.hidden.detach(), case.weight.detach()

    def fast(h: Tensor, w: Tensor) -> Tensor:
        return el.linear_reinforce_loss(h, w, case.token, case.advantage, entropy_coef=0.1)

    def slow(h: Tensor, w: Tensor) -> Tensor:
        result = definition(h, w, case.token)
        return -(case.advantage * result.log_prob + 0.1 * result.entropy).mean()

    both = (fast, slow)
    assert_same(*(torch.func.grad(f, argnums=(0, 1))(hidden, weight) for f in both))
    assert_same(*(torch.func.hessian(f)(hidden, weight) for f in both))
    tangents = (case.normal(4, 3), case.normal(5, 3))
    assert_same(*(torch.func.jvp(f, (hidden, weight), tangents) for f in both))
    hvp = [torch.func.jvp(torch.func.grad(f), (hidden, weight), tangents) for f in both]
    assert_same(*hvp)
    many = case.normal(6, 4, 3)
    assert_same(*(torch.func.vmap(torch.func.grad(f), (0, None))(many, weight) for f in both))


def test_forward_mode_without_torch_func_equals_the_definition() -> None:
    case = Case(12)
    tangent = case.normal(N, D)
    results = []
    for function in (el.linear_statistics, definition):
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(case.hidden.detach(), tangent)
            entropy = function(dual, case.weight.detach(), case.token).entropy
            results.append(torch.autograd.forward_ad.unpack_dual(entropy).tangent)
    assert_same(*results)


def test_transformed_upstream_gradients_are_not_lost() -> None:
    case = Case(24)
    several, tangent = case.normal(3, N), case.normal(N)
    results = []
    for function in (el.linear_statistics, definition):
        log_prob = function(*case.inputs).log_prob
        batched = torch.autograd.grad(
            log_prob, case.hidden, several, is_grads_batched=True, retain_graph=True
        )
        with torch.autograd.forward_ad.dual_level():
            upstream = torch.autograd.forward_ad.make_dual(several[0], tangent)
            (moved,) = torch.autograd.grad(log_prob, case.weight, upstream)
            results.append((*batched, torch.autograd.forward_ad.unpack_dual(moved).tangent))
    assert_same(*results)


def test_a_second_backward_over_a_retained_graph_gives_the_same() -> None:
    case = Case(13)
    loss = el.linear_reinforce_loss(*case.inputs, case.advantage)
    first = torch.autograd.grad(3 * loss, (case.hidden, case.weight), retain_graph=True)
    second = torch.autograd.grad(3 * loss, (case.hidden, case.weight))
    assert_same(second, first, rtol=0, atol=0)
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


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


def test_scratch_memory_is_written_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(20)
    wanted = gradients(
        el.linear_reinforce_loss(*case.inputs, case.advantage), case.hidden, case.weight
    )
    torch.use_deterministic_algorithms(True)
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    try:  # in this mode torch fills every new tensor with NaN
        assert bool(torch.empty(3).isnan().all())
        loss = el.linear_reinforce_loss(*case.inputs, case.advantage)
        assert_same(gradients(loss, case.hidden, case.weight), wanted)
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


def message(call: Callable[[], Any], kind: type[Exception]) -> str:
    with pytest.raises(kind) as caught:
        call()
    return str(caught.value)


def test_errors_name_the_argument_and_the_remedy() -> None:
    case = Case(23)
    hidden, weight, token = case.inputs
    assert message(lambda: el.linear_log_prob(hidden, weight.t(), token), ShapeError) == (
        "`hidden`: got 8 features, expected D = 37, the width of weight [8, 37]; pass the hidden "
        "states that the last layer multiplies; the weight is [V, D]"
    )
    assert message(lambda: el.linear_log_prob(hidden, weight.float(), token), InvalidTypeError) == (
        "`weight`: got dtype float32, expected float64, the dtype of hidden; convert one of them, "
        "for instance with weight.to(hidden.dtype)"
    )
    assert message(lambda: el.linear_log_prob(hidden, weight, token + V), InvalidValueError) == (
        f"`token`: got a maximum of {int(token.max()) + V}, expected indices in [0, 37), or "
        "ignore_index = -100; weight has V = 37 rows, one for each token"
    )
    assert message(
        lambda: el.linear_log_prob(hidden, weight, token, temperature=0.0), InvalidValueError
    ) == ("`temperature`: got 0, expected a finite number > 0; choose a positive one")
    mask = case.mask()
    mask[3, token[3]] = False
    assert message(
        lambda: el.linear_log_prob(hidden, weight, token, mask=mask), InvalidValueError
    ) == (
        f"`token`: got token {int(token[3])} in row 3, which its mask forbids, expected tokens "
        "that the mask allows; an illegal token has probability 0: correct the mask, or set the "
        "token to ignore_index"
    )
    assert message(
        lambda: el.linear_reinforce_loss(hidden, weight, token, case.advantage[:, None]), ShapeError
    ) == (
        "`advantage`: got shape [23, 1], expected [23], one number for each token; reshape it; "
        "nothing is broadcast silently"
    )
    assert (
        message(
            # unwrapped: the checks of annotations during tests would come first
            lambda: inspect.unwrap(el.linear_reinforce_loss)(
                hidden, weight, token, case.advantage, reduction="average"
            ),
            InvalidValueError,
        )
        == "`reduction`: got 'average', expected 'mean', 'sum' or 'none'; choose one of them"
    )
    clipped = (hidden, weight, token, case.advantage, case.advantage)
    assert message(
        lambda: el.linear_clipped_policy_loss(*clipped, clip=(1.2, 0.2)), InvalidValueError
    ) == (
        "`clip`: got (1.2, 0.2), expected (ε₋, ε₊) with 0 <= ε₋ <= 1 and ε₊ >= 0; pass how far the "
        "ratio may leave 1, below and above"
    )
    assert message(
        lambda: el.linear_clipped_policy_loss(*clipped, kl_coef=0.1), InvalidValueError
    ) == (
        "`kl_coef`: got 0.1 without ref_log_prob, expected the reference's log-probabilities; pass "
        "ref_log_prob, or leave kl_coef at 0"
    )
