"""The policy losses against their definitions, and rows that do not count."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import grad, vmap

import eligibility as el
from eligibility.errors import EligibilityError, InvalidTypeError, InvalidValueError, ShapeError

INF = math.inf


def problem(rows: int = 24, categories: int = 5) -> dict[str, Tensor]:
    """A policy that has moved away from the one that sampled, far enough to be clipped."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    logits = normal(rows, categories)
    action = torch.randint(categories, (rows,), generator=generator)
    moved = (logits + 0.5 * normal(rows, categories)).log_softmax(-1)
    return {
        "logits": logits.requires_grad_(),
        "action": action,
        "advantage": normal(rows),
        "old_log_prob": moved.gather(-1, action.unsqueeze(-1)).squeeze(-1),
        "ref_logits": normal(rows, categories),
        "weight": normal(rows).abs(),
    }


def definition(p: dict[str, Tensor], estimator: str, clip: tuple[float, float]) -> Tensor:
    """Equation (7) of Schulman et al. 2017 with entropy, KL and weight, written down row by row."""
    losses = []
    for i in range(len(p["action"])):
        log_pi, log_ref = p["logits"][i].log_softmax(-1), p["ref_logits"][i].log_softmax(-1)
        a = int(p["action"][i])
        ratio = (log_pi[a] - p["old_log_prob"][i]).exp()
        advantage = p["advantage"][i]
        bounded = max(min(ratio, torch.tensor(1 + clip[1])), torch.tensor(1 - clip[0]))
        surrogate = min(ratio * advantage, bounded * advantage)
        d = log_pi[a] - log_ref[a]
        kl = {
            "k1": d,
            "k2": d**2 / 2,
            "k3": (-d).exp() - 1 + d,
            "exact": (log_pi.exp() * (log_pi - log_ref)).sum(),
        }[estimator]
        entropy = -(log_pi.exp() * log_pi).sum()
        losses.append(p["weight"][i] * (-surrogate + 0.3 * kl - 0.1 * entropy))
    return torch.stack(losses)


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3", "exact"])
@pytest.mark.parametrize("clip", [(0.2, 0.2), (0.1, 0.4), (1.0, INF)])
def test_clipped_loss_and_gradient_equal_the_definition(
    path: str, estimator: Any, clip: tuple[float, float]
) -> None:
    p = problem()
    chosen = p["ref_logits"].log_softmax(-1).gather(-1, p["action"].unsqueeze(-1)).squeeze(-1)
    loss = el.clipped_policy_loss(
        p["logits"],
        p["action"],
        p["advantage"],
        p["old_log_prob"],
        clip=clip,
        ref_log_prob=None if estimator == "exact" else chosen,
        ref_logits=p["ref_logits"] if estimator == "exact" else None,
        kl_coef=0.3,
        kl_estimator=estimator,
        weight=p["weight"],
        entropy_coef=0.1,
        reduction="none",
    )
    expected = definition(p, estimator, clip)
    torch.testing.assert_close(loss, expected)
    upstream = torch.arange(24.0).double().cos()
    (ours,) = torch.autograd.grad(loss, p["logits"], upstream)
    (theirs,) = torch.autograd.grad(expected, p["logits"], upstream)
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


def test_at_the_sampling_policy_the_gradient_is_that_of_reinforce(path: str) -> None:
    p = problem()
    own = el.categorical_log_prob(p["logits"], p["action"]).detach()
    arguments = (p["logits"], p["action"], p["advantage"])
    (clipped,) = torch.autograd.grad(el.clipped_policy_loss(*arguments, own), p["logits"])
    (reinforce,) = torch.autograd.grad(el.reinforce_loss(*arguments), p["logits"])
    torch.testing.assert_close(clipped, reinforce)


def test_k1_and_k3_are_unbiased_for_the_exact_divergence() -> None:
    p = problem(rows=1, categories=4)
    pi, reference = p["logits"].detach().softmax(-1)[0], p["ref_logits"].log_softmax(-1)[0]
    exact = el.categorical_kl(p["logits"].detach(), p["ref_logits"])[0]
    zero = torch.zeros(1).double()
    for estimator in ("k1", "k3"):
        mean = sum(
            pi[k]
            * el.clipped_policy_loss(
                p["logits"].detach(),
                torch.tensor([k]),
                zero,
                zero,
                ref_log_prob=reference[k : k + 1],
                kl_coef=1.0,
                kl_estimator=estimator,
            )
            for k in range(4)
        )
        torch.testing.assert_close(mean, exact)


def test_derivatives_to_second_order_and_vmap(path: str) -> None:
    p = problem(rows=4, categories=3)

    def loss(logits: Tensor, action: Tensor, advantage: Tensor, old: Tensor) -> Tensor:
        return el.clipped_policy_loss(
            logits, action, advantage, old, entropy_coef=0.1, softcap=5.0, z_loss_coef=0.1
        )

    rest = (p["action"], p["advantage"], p["old_log_prob"])
    assert torch.autograd.gradcheck(lambda z: loss(z, *rest), p["logits"])
    assert torch.autograd.gradgradcheck(lambda z: loss(z, *rest), p["logits"])
    (whole,) = torch.autograd.grad(4 * loss(p["logits"], *rest), p["logits"])
    torch.testing.assert_close(vmap(grad(loss))(p["logits"].detach(), *rest), whole)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_reduced_losses_equal_those_reduced_by_hand(path: str, reduction: Any) -> None:
    """The loss that takes its gradient on the way forward is the sum of those that do not."""
    p = problem()
    action = p["action"].where(p["action"] != 3, -7)
    arguments = (p["logits"], action, p["advantage"])
    options: dict[str, Any] = {"weight": p["weight"], "entropy_coef": 0.1, "ignore_index": -7}
    loss = el.reinforce_loss(*arguments, **options, reduction=reduction)
    each = el.reinforce_loss(*arguments, **options, reduction="none")
    by_hand = each.sum() / (int((action != -7).sum()) if reduction == "mean" else 1)
    torch.testing.assert_close(loss, by_hand)
    (ours,) = torch.autograd.grad(3 * loss, p["logits"])
    (theirs,) = torch.autograd.grad(3 * by_hand, p["logits"])
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("by", ["weight", "ignore_index"])
def test_rows_that_do_not_count_may_hold_anything(path: str, by: str) -> None:
    p = problem(rows=3)
    nonsense = torch.tensor([1.0, math.nan, 1.0]).double()
    huge = torch.tensor([0.0, -INF, 0.0]).double()
    forbidden = torch.tensor([True, True, True, True, False]).expand(3, 5)
    action = torch.tensor([0, 4 if by == "weight" else -100, 1])
    options: dict[str, Any] = {
        "mask": forbidden,
        "weight": torch.tensor([1.0, 0.0, 1.0]).double() if by == "weight" else None,
        "ignore_index": None if by == "weight" else -100,
        "entropy_coef": 0.1,
        "z_loss_coef": 0.1,
        "reduction": "none",
    }
    counted = torch.tensor([0, 2])
    rows = {name: options[name] for name in ("entropy_coef", "z_loss_coef", "reduction")}
    rows["mask"] = forbidden[counted]
    for extra in ((), (huge,)):
        function = el.clipped_policy_loss if extra else el.reinforce_loss
        loss = function(p["logits"], action, nonsense, *extra, **options)
        assert loss[1] == 0
        (slope,) = torch.autograd.grad(loss.sum(), p["logits"])
        assert torch.equal(slope[1], torch.zeros(5).double())
        part = tuple(x[counted] for x in extra)
        alone = function(p["logits"][counted], action[counted], nonsense[counted], *part, **rows)
        torch.testing.assert_close(loss[counted], alone)


def test_nonsense_in_the_reference_of_a_row_that_does_not_count_stays_there(path: str) -> None:
    p = problem(rows=3)
    reference = p["ref_logits"].clone()
    reference[1] = torch.tensor([math.nan, INF, -INF, 0.0, 0.0]).double()
    logits = torch.where(torch.arange(15).reshape(3, 5) == 7, -INF, p["logits"])
    action = torch.tensor([0, 2, 1])  # in the middle row, the one that its logits forbid
    loss = el.clipped_policy_loss(
        logits,
        action,
        p["advantage"],
        p["old_log_prob"],
        ref_logits=reference,
        kl_estimator="exact",
        kl_coef=0.5,
        z_loss_coef=0.1,
        weight=torch.tensor([1.0, 0.0, 1.0]).double(),
    )
    (slope,) = torch.autograd.grad(loss, p["logits"])
    assert loss.isfinite()
    assert slope.isfinite().all()
    assert torch.equal(slope[1], torch.zeros(5).double())


def test_ignored_rows_do_not_count_in_the_mean_nor_in_the_statistics(path: str) -> None:
    p = problem(rows=4)
    action = torch.tensor([1, -1, 2, -1])
    arguments = (p["logits"], action, p["advantage"])
    mean = el.reinforce_loss(*arguments, ignore_index=-1)
    total = el.reinforce_loss(*arguments, ignore_index=-1, reduction="sum")
    torch.testing.assert_close(mean, total / 2)
    nothing = torch.full((4,), -1)
    assert el.reinforce_loss(p["logits"], nothing, p["advantage"], ignore_index=-1) == 0
    result = el.categorical_statistics(p["logits"], action, ignore_index=-1)
    assert (result.log_prob == 0).tolist() == (result.entropy == 0).tolist()
    assert (result.entropy == 0).tolist() == [False, True, False, True]


def test_sequences_are_summed_over_their_tokens() -> None:
    p = problem(rows=6)
    names = ("logits", "action", "advantage")
    arguments = tuple(p[name].reshape(2, 3, *p[name].shape[1:]) for name in names)
    each = el.reinforce_loss(*arguments, reduction="none")
    torch.testing.assert_close(el.reinforce_loss(*arguments, reduction="sequence"), each.sum(-1))


def test_temperature_softcap_and_z_loss_are_as_written() -> None:
    p = problem()
    z, action = p["logits"], p["action"]
    shaped = 2.0 * torch.tanh(z / 2.0) / 0.7
    options = {"temperature": 0.7, "softcap": 2.0}
    torch.testing.assert_close(
        el.categorical_log_prob(z, action, **options), el.categorical_log_prob(shaped, action)
    )
    torch.testing.assert_close(el.categorical_entropy(z, **options), el.categorical_entropy(shaped))
    torch.testing.assert_close(
        el.categorical_kl(z, p["ref_logits"], **options),
        el.categorical_kl(shaped, 2.0 * torch.tanh(p["ref_logits"] / 2.0) / 0.7),
    )
    loss = el.reinforce_loss(
        z, action, p["advantage"], z_loss_coef=0.5, reduction="none", **options
    )
    expected = el.reinforce_loss(shaped, action, p["advantage"], reduction="none")
    expected = expected + 0.5 * torch.logsumexp(shaped, -1) ** 2
    torch.testing.assert_close(loss, expected)
    (ours,) = torch.autograd.grad(loss.sum(), z, retain_graph=True)
    (theirs,) = torch.autograd.grad(expected.sum(), z)
    torch.testing.assert_close(ours, theirs)


def test_softcapped_minus_infinity_stays_forbidden() -> None:
    z = torch.tensor([0.0, -INF, 1.0], requires_grad=True)
    log_prob = el.categorical_log_prob(z, torch.tensor(0), softcap=30.0)
    legal = 30.0 * torch.tanh(torch.tensor([0.0, 1.0]) / 30.0)
    torch.testing.assert_close(log_prob, legal.log_softmax(-1)[0])
    (slope,) = torch.autograd.grad(log_prob, z)
    assert slope.isfinite().all()
    assert slope[1] == 0


Z, A, R = torch.zeros(2, 3), torch.tensor([0, 1]), torch.zeros(2)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: el.clipped_policy_loss(Z, A, R, R, clip=(1.5, 0.2)),
            InvalidValueError,
            "`clip`: got (1.5, 0.2), expected (ε₋, ε₊) with 0 <= ε₋ <= 1 and ε₊ >= 0; "
            "pass how far the ratio may leave 1, below and above",
        ),
        (
            lambda: el.clipped_policy_loss(Z, A, R, R, kl_coef=0.1),
            InvalidValueError,
            "`kl_coef`: got 0.1 without ref_log_prob, expected the reference's log-probabilities; "
            "pass ref_log_prob, or leave kl_coef at 0",
        ),
        (
            lambda: el.clipped_policy_loss(Z, A, R, R, kl_coef=0.1, kl_estimator="exact"),
            InvalidValueError,
            "`kl_estimator`: got 'exact' without ref_logits, expected the logits of the reference "
            "policy; pass ref_logits, or estimate from ref_log_prob with 'k1', 'k2' or 'k3'",
        ),
        (
            lambda: el.clipped_policy_loss(Z, A, R, R, ref_logits=Z, kl_coef=0.1),
            InvalidValueError,
            "`kl_coef`: got 0.1 without ref_log_prob, expected the reference's log-probabilities; "
            "pass ref_log_prob, or leave kl_coef at 0",
        ),
        (
            lambda: el.clipped_policy_loss(Z, A, R, R, ref_logits=Z, ref_log_prob=R),
            InvalidValueError,
            "`ref_logits`: got one, with kl_estimator='k3', expected only what the estimator "
            "reads; 'k1', 'k2' and 'k3' read ref_log_prob, 'exact' reads ref_logits",
        ),
        (
            lambda: el.clipped_policy_loss(Z, A, R, torch.zeros(2, 1)),
            ShapeError,
            "`old_log_prob`: got shape [2, 1], expected [2], one number for each row of logits; "
            "reshape it; nothing is broadcast silently",
        ),
        (
            lambda: el.reinforce_loss(Z, A, A),
            InvalidTypeError,
            "`advantage`: got dtype int64, expected a floating-point dtype; "
            "convert it, for instance with advantage.float()",
        ),
        (
            lambda: el.reinforce_loss(Z, A, R, temperature=0.0),
            InvalidValueError,
            "`temperature`: got 0, expected a finite number > 0; choose a positive one",
        ),
    ],
)
def test_mistakes_say_what_to_do(
    call: Callable[[], Tensor], error: type[EligibilityError], message: str
) -> None:
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value) == message


def test_an_impossible_action_without_an_advantage_leaves_the_terms_of_its_row() -> None:
    z = torch.tensor([[-torch.inf, 0.0, 1.0]], dtype=torch.float64)
    other = torch.tensor([[-torch.inf, 1.0, 0.0]], dtype=torch.float64)
    action, nothing = torch.tensor([0]), torch.zeros(1, dtype=torch.float64)
    loss = el.reinforce_loss(z, action, nothing, z_loss_coef=0.5, reduction="none")
    torch.testing.assert_close(loss, 0.5 * z.logsumexp(-1) ** 2)
    clipped = el.clipped_policy_loss(
        *(z, action, nothing, nothing),
        ref_logits=other,
        kl_coef=2.0,
        kl_estimator="exact",
        reduction="none",
    )
    p, q = (torch.distributions.Categorical(logits=x[:, 1:]) for x in (z, other))
    torch.testing.assert_close(clipped, 2.0 * torch.distributions.kl_divergence(p, q))
