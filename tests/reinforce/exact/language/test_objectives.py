"""The figures that threads have published, from their own inputs, and the formulas' gradients."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import eligibility as el

o = el.exact.language.objectives


def test_the_21_percent_of_trl_6503_is_the_difference_at_the_sampled_token() -> None:
    """huggingface/trl#6503: multiplying k3 by a ratio of 1 changes the gradient by about 21 %.

    The script of the thread: logits [3, 5, 7] of seed 0, token 0 everywhere, and a reference whose
    log-probability is lower by 0.4. ∂k3/∂log π = 1 − e^{−0.4} and ∂(ρ k3)/∂log π = 0.4, at every
    token alike, so the figure is 0.4/(1 − e^{−0.4}) − 1 = 21.3 %. It is no expectation: on this
    script nothing is averaged over what the policy could have drawn.
    """
    torch.manual_seed(0)
    logits = torch.randn(3, 5, 7, requires_grad=True)
    log_probs = logits.log_softmax(-1)[..., :1]
    group = o.AnswerGroups(
        log_probs=log_probs,
        behaviour_log_probs=log_probs.detach(),
        reference_log_probs=log_probs.detach() - 0.4,
        rewards=torch.zeros(3, 5),
        mask=torch.ones(3, 5, 1),
    )
    plain, corrected = (
        torch.autograd.grad(k(group).sum(), logits, retain_graph=True)[0]
        for k in (o.k3, o.ratio_k3)
    )
    assert bool((group.token_ratio == 1.0).all())
    difference = float((corrected - plain).norm() / plain.norm())
    assert difference == pytest.approx(0.4 / (1 - math.exp(-0.4)) - 1, rel=1e-5)
    assert f"{difference:.0%}" == "21%"


def test_the_ratio_of_a_truncated_sampler_is_the_mass_that_it_kept() -> None:
    """huggingface/trl#6789: with top-p or top-k, ρ_t = S, the mass kept, at every token drawn."""
    policy = torch.tensor([[0.5, 0.3, 0.2], [0.45, 0.35, 0.2], [0.6, 0.2, 0.2]]).double().log()
    behaviour = policy.clone()
    behaviour[:, 2] = -math.inf  # keeps 0.8 of every state
    answers = el.exact.language.answers(behaviour)
    drawn = answers.values[(answers.probs > 0).nonzero().squeeze(1)]
    ratio = (drawn.log_probs(policy) - drawn.log_probs(behaviour)).exp()
    assert torch.allclose(ratio[drawn.mask], torch.tensor(0.8, dtype=torch.float64))


@pytest.fixture
def group() -> o.AnswerGroups:
    """Two groups of two answers of at most three tokens, off-policy."""
    generator = torch.Generator().manual_seed(0)

    def negative() -> Tensor:
        values = -torch.rand(2, 2, 3, generator=generator, dtype=torch.float64) * 3
        return values * mask

    mask = torch.tensor([[[1, 1, 1], [1, 0, 0]], [[1, 1, 0], [1, 1, 1]]]).double()
    rewards = torch.randn(2, 2, generator=generator, dtype=torch.float64)
    return o.AnswerGroups(negative().requires_grad_(), negative(), negative(), rewards, mask)


def weights(group: o.AnswerGroups, terms: Tensor) -> Tensor:
    """The weight of each ∇ log π(y_t)."""
    return torch.autograd.grad((terms * group.mask).sum(), group.log_probs)[0]


def test_each_correction_weighs_tokens_as_its_formula_says(group: o.AnswerGroups) -> None:
    """Second route: the derivative of each formula, by hand."""
    a = group.rewards[..., None]
    token = (group.log_probs - group.behaviour_log_probs).exp().detach()
    answer = token.prod(-1, keepdim=True)
    s = answer ** (1 / group.lengths)

    def unclipped(ratio: Tensor) -> Tensor:
        return torch.where(a > 0, ratio < 1.2, ratio > 0.8)

    wanted = {
        o.uncorrected: a,
        o.token_ratio: token * a,
        o.sequence_ratio: answer * a,
        o.truncated: torch.where(token > 2, 2.0, token) * a,
        o.masked: torch.where((token >= 0.5) & (token <= 2), token, 0.0) * a,
        o.sequence_truncated: torch.where(answer > 2, 2.0, answer) * a,
        o.sequence_masked: torch.where(answer > 2, 0.0, answer) * a,
        o.clipped: torch.where(unclipped(token), token, 0.0) * a,
        o.gspo: torch.where(unclipped(s), s, 0.0) * a / group.lengths,
        o.cispo: torch.where(token > 2, 2.0, token) * a,
    }
    assert bool((token > 2).any())  # so that every limit acts
    assert bool((answer > 2).any())
    for correction, by_hand in wanted.items():
        got = weights(group, correction(group, a))
        assert torch.allclose(got, by_hand * group.mask, atol=1e-14), correction.__name__


def test_each_divergence_weighs_tokens_by_its_derivative(group: o.AnswerGroups) -> None:
    log_ratio = (group.log_probs - group.reference_log_probs).detach()
    rho = group.token_ratio.detach()
    k3 = (-log_ratio).exp() - 1 + log_ratio
    wanted = {
        o.k1: torch.ones_like(rho),
        o.k2: log_ratio,
        o.k3: 1 - (-log_ratio).exp(),
        o.ratio_k3: rho * (k3 + 1 - (-log_ratio).exp()),
    }
    for penalty, by_hand in wanted.items():
        got = weights(group, penalty(group))
        assert torch.allclose(got, by_hand * group.mask, atol=1e-14), penalty.__name__
    assert torch.allclose(wanted[o.ratio_k3], rho * log_ratio, atol=1e-14)


def test_baselines(group: o.AnswerGroups) -> None:
    r = torch.tensor([[1.0, 2.0, 6.0]], dtype=torch.float64)
    assert o.no_baseline(r).tolist() == [[1.0, 2.0, 6.0]]
    assert o.group_mean(r).tolist() == [[-2.0, -1.0, 3.0]]
    assert o.leave_one_out(r).tolist() == [[-3.0, -1.5, 4.5]]
    deviation = math.sqrt((4 + 1 + 9) / 2) + 1e-4
    assert o.whitened(r)[0].tolist() == pytest.approx([x / deviation for x in (-2, -1, 3)])
