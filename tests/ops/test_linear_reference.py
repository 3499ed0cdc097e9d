"""The exact KL to a reference through the linear head, against whole logits and torch's own KL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

import eligibility as el
from eligibility.errors import InvalidValueError, ShapeError
from eligibility.ops.backends import cpu
from eligibility.ops.linear import chunk, sweep
from tests.ops.linear_definition import Case, D, N, V, assert_same, definition, gradients

WIDTH = 5  # of the reference's hidden states
OPTIONS: dict[str, Callable[[Case], dict[str, Any]]] = {
    "bare": lambda case: {},
    "bias": lambda case: {"bias": case.bias},
    "mask": lambda case: {"mask": case.mask()},
    "sparse": lambda case: {"mask": case.mask().double().to_sparse_csr()},
    "everything": lambda case: {
        "bias": case.bias,
        "temperature": 1.3,
        "softcap": 2.5,
        "mask": case.mask(),
    },
}
pytestmark = pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")


@pytest.fixture(params=["one chunk", "many chunks"])
def _chunks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "many chunks":
        monkeypatch.setattr(sweep, "_CHUNK_BYTES", 8 * V * 8)
        monkeypatch.setattr(sweep, "_CHUNK_SHARE", 1 << 30)
        monkeypatch.setattr(chunk, "_BLOCK_ELEMENTS", 3 * V)


def reference_of(case: Case) -> tuple[el.LinearReference, Tensor]:
    """A reference, and its raw logits whole."""
    hidden, weight, bias = case.normal(N, WIDTH), case.normal(V, WIDTH), case.normal(V)
    return el.LinearReference(hidden, weight, bias), hidden @ weight.T + bias


def divergence(case: Case, raw: Tensor, **options: Any) -> Tensor:
    """KL(π ‖ π_ref) of every row, written out with whole logits."""

    def log_probs(z: Tensor) -> Tensor:
        if "softcap" in options:
            z = options["softcap"] * torch.tanh(z / options["softcap"])
        z = z / options.get("temperature", 1.0)
        if "mask" in options:
            z = z.masked_fill(~dense(options["mask"]), -1e9)  # as good as −∞ in float64
        return z.log_softmax(-1)

    z = torch.nn.functional.linear(case.hidden, case.weight, options.get("bias"))
    p, q = log_probs(z), log_probs(raw)
    return torch.nn.functional.kl_div(q, p, reduction="none", log_target=True).sum(-1)


def dense(mask: Tensor) -> Tensor:
    return mask.to_dense() > 0 if mask.layout == torch.sparse_csr else mask


@pytest.mark.usefixtures("_chunks")
@pytest.mark.parametrize("form", ["linear", "chunks"])
@pytest.mark.parametrize("option", OPTIONS)
def test_losses_with_an_exact_kl_equal_those_of_whole_logits(option: str, form: str) -> None:
    case = Case(31)
    options = OPTIONS[option](case)
    reference, raw = reference_of(case)
    given: Any = reference if form == "linear" else lambda rows: raw[rows]
    token, weights = case.token.clone(), torch.rand(N, generator=case.generator).double()
    token[2], weights[4], case.advantage[5] = -100, 0.0, 0.0
    counts = token != -100
    inputs = [case.hidden, case.weight] + ([case.bias] if "bias" in options else [])
    masked = {**options, "mask": dense(options["mask"])} if "mask" in options else options
    now = definition(*case.inputs, **masked)
    kl = divergence(case, raw, **options)
    old = now.log_prob.detach() + 0.4 * case.normal(N)
    ratio = (now.log_prob - old).exp()
    clipped = torch.minimum(ratio * case.advantage, ratio.clamp(0.8, 1.2) * case.advantage)
    coefficients: dict[str, Any] = {
        "token_weight": weights, "entropy_coef": 0.2, "z_loss_coef": 0.03, "kl_coef": 0.7,
        "reference": given,
    }  # fmt: skip
    extra = 0.7 * kl - 0.2 * now.entropy + 0.03 * now.log_normalizer**2
    for reduction in ("mean", "none"):
        chosen = {**options, **coefficients, "reduction": reduction}
        call = (case.hidden, case.weight, token, case.advantage)
        losses = (
            el.linear_reinforce_loss(*call, **chosen),
            el.linear_clipped_policy_loss(*call, old, kl_estimator="exact", **chosen),
        )
        for found, surrogate in zip(losses, (case.advantage * now.log_prob, clipped), strict=True):
            wanted = torch.where(counts, weights * (extra - surrogate), 0.0)
            wanted = wanted.sum() / counts.sum() if reduction == "mean" else wanted
            assert_same(found, wanted)
            upstream = torch.rand(found.shape, generator=case.generator, dtype=torch.float64)
            pair = [
                torch.autograd.grad(loss, inputs, upstream, retain_graph=True)
                for loss in (found, wanted)
            ]
            assert_same(*pair)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # by torch's own jvp
def test_the_statistic_and_its_higher_derivatives_equal_the_definition() -> None:
    case = Case(32)
    reference, raw = reference_of(case)
    found = el.linear_statistics(*case.inputs, reference=reference).kl
    wanted = divergence(case, raw)
    assert found is not None
    assert_same(found, wanted)
    assert bool((found > 0).all())

    def twice(kl: Tensor) -> tuple[Tensor, ...]:
        (first,) = torch.autograd.grad(kl.sum(), case.hidden, create_graph=True)
        return gradients((first**2).sum(), case.hidden, case.weight)

    assert_same(twice(found), twice(wanted))

    def loss(hidden: Tensor) -> Tensor:
        return el.linear_reinforce_loss(
            hidden, case.weight.detach(), case.token, case.advantage, reference=reference,
            kl_coef=0.5,
        )  # fmt: skip

    tangent, hidden = case.normal(N, D), case.hidden.detach()
    moved = torch.func.jvp(torch.func.grad(loss), (hidden,), (tangent,))
    value = loss(case.hidden)
    (first,) = torch.autograd.grad(value, case.hidden, create_graph=True)
    assert_same(moved, (first.detach(), *gradients((first * tangent).sum(), case.hidden)))
    assert el.linear_statistics(*case.inputs).kl is None


def test_a_policy_that_is_its_reference_has_no_kl_and_no_gradient_of_it() -> None:
    case = Case(33)
    reference = el.LinearReference(case.hidden.detach(), case.weight.detach())
    kl = el.linear_statistics(*case.inputs, reference=reference).kl
    assert kl is not None
    assert_same(kl, torch.zeros(N).double())
    found = gradients(kl.sum(), case.hidden, case.weight)
    assert_same(found, tuple(torch.zeros_like(x) for x in (case.hidden, case.weight)))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_errors_are_at_most_those_of_the_plain_way(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(3)
    hidden = torch.randn(64, 32, generator=generator)
    weight = torch.randn(257, 32, generator=generator) / 4
    close = [x + 0.1 * torch.randn(x.shape, generator=generator) for x in (hidden, weight)]
    inputs = [x.to(dtype) for x in (hidden, weight, *close)]
    token = torch.randint(257, (64,), generator=generator)

    def plain(h: Tensor, w: Tensor, ref_h: Tensor, ref_w: Tensor) -> tuple[Tensor, ...]:
        h, w = (x.clone().requires_grad_() for x in (h, w))
        p, q = (h @ w.T).log_softmax(-1), (ref_h @ ref_w.T).log_softmax(-1)
        kl = (p.exp() * (p - q)).sum(-1)
        return kl.detach(), *torch.autograd.grad(kl.mean(), (h, w))

    h, w = (x.clone().requires_grad_() for x in inputs[:2])
    reference = el.LinearReference(*inputs[2:])
    kl = el.linear_statistics(h, w, token, reference=reference).kl
    loss = el.linear_reinforce_loss(h, w, token, torch.zeros(64), reference=reference, kl_coef=1.0)
    assert kl is not None
    assert kl.dtype == torch.float32
    ours = (kl.detach(), *torch.autograd.grad(loss, (h, w)))
    exact = plain(*(x.double() for x in inputs))
    for a, b, truth in zip(ours, plain(*inputs), exact, strict=True):
        rms = [float((x.double() - truth).square().mean().sqrt()) for x in (a, b)]
        assert rms[0] <= 1.01 * rms[1]


def test_it_takes_eight_products_and_no_logits_of_the_reference_at_a_coefficient_of_0() -> None:
    case = Case(34)
    reference, _ = reference_of(case)
    for kl_coef, products in ((0.5, 6 * D + 2 * WIDTH), (0.0, 6 * D)):
        with FlopCounterMode(display=False) as counter:
            el.linear_reinforce_loss(
                *case.inputs, case.advantage, reference=reference, kl_coef=kl_coef
            ).backward()
        assert counter.get_total_flops() == N * V * products
    with FlopCounterMode(display=False) as counter:
        el.linear_clipped_policy_loss(
            *case.inputs, case.advantage, case.advantage, reference=reference, kl_coef=0.5,
            kl_estimator="exact", reduction="none",
        ).sum().backward()  # fmt: skip
    assert counter.get_total_flops() == N * V * (8 * D + 4 * WIDTH)


@pytest.mark.parametrize("native", [True, False])
def test_without_a_reference_it_takes_six(native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not native:
        monkeypatch.setattr(cpu, "_library", None)
    case = Case(35)
    old = definition(*case.inputs).log_prob.detach() - 0.01  # no ratio is clipped
    with FlopCounterMode(display=False) as counter:
        el.linear_clipped_policy_loss(
            *case.inputs, case.advantage, old, entropy_coef=0.1
        ).backward()
    assert counter.get_total_flops() == 6 * N * V * D


def message(error: type[Exception], call: Callable[[], Any]) -> str:
    with pytest.raises(error) as caught:
        call()
    return str(caught.value)


def test_what_does_not_fit_together_is_refused() -> None:
    case = Case(36)
    reference, raw = reference_of(case)
    call = (*case.inputs, case.advantage)
    assert message(InvalidValueError, lambda: el.linear_reinforce_loss(*call, kl_coef=0.1)) == (
        "`kl_coef`: got 0.1 for an exact KL without a reference, expected the reference policy; "
        "pass "
        "reference=LinearReference(hidden, weight), or leave kl_coef at 0"
    )
    assert message(
        InvalidValueError,
        lambda: el.linear_clipped_policy_loss(*call, case.advantage, reference=reference),
    ) == (
        "`reference`: got one, with kl_estimator='k3', expected only what the estimator reads; "
        "'k1', 'k2' and 'k3' read ref_log_prob, 'exact' reads reference"
    )
    learning = el.LinearReference(case.hidden, case.weight)
    assert message(
        InvalidValueError, lambda: el.linear_statistics(*case.inputs, reference=learning)
    ) == (
        "`reference.hidden`: got a tensor that requires gradients, expected a constant: the KL has "
        "no gradient for its reference here; pass hidden.detach(), or compute it under "
        "torch.no_grad()"
    )
    short = el.LinearReference(case.normal(N, WIDTH), case.normal(V - 1, WIDTH))
    assert message(ShapeError, lambda: el.linear_statistics(*case.inputs, reference=short)) == (
        "`reference.weight`: got shape [36, 5], expected [37, 5], a row for each row of weight; "
        "reshape it; nothing is broadcast silently"
    )
    assert message(
        ShapeError,
        lambda: el.linear_statistics(*case.inputs, reference=lambda rows: raw[:1]),
    ) == (
        "`reference(rows)`: got shape [1, 37], expected [23, 37], a row of logits for each of the "
        "rows asked for; the rows are positions among all tokens, leading axes flattened"
    )
