"""Drawing categories: the right frequencies, and never what has no weight."""

from __future__ import annotations

import pytest
import torch
from scipy.stats import chisquare

import eligibility as el
from eligibility.errors import InvalidValueError
from eligibility.ops import sampling
from eligibility.ops.sampling import draw_categories, draw_counts


@pytest.mark.parametrize("weights", [[1.0, 2.0, 3.0, 4.0], [0.0, 5.0, 0.0, 1e-3, 1.0, 0.0]])
def test_frequencies_are_proportional_to_the_weights(weights: list[float]) -> None:
    generator = torch.Generator().manual_seed(0)
    row = torch.tensor(weights)
    drawn = draw_categories(row, torch.Size([100_000]), generator)
    counts = torch.bincount(drawn, minlength=len(weights))
    assert torch.equal(counts[row == 0], torch.zeros_like(counts[row == 0]))
    positive = row > 0
    expected = (row / row.sum() * 100_000)[positive].double()
    assert chisquare(counts[positive], expected * (100_000 / expected.sum())).pvalue > 1e-3


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("extreme", [0.0, 1 - 2**-53])
def test_the_ends_of_the_uniform_never_reach_a_weight_of_zero(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, extreme: float
) -> None:
    """The smallest and the largest number that torch.rand returns, for every placing of zeros."""

    def rand(*shape: int, **options: object) -> torch.Tensor:
        return torch.full(shape, extreme, dtype=torch.float64)

    monkeypatch.setattr(sampling.torch, "rand", rand)
    placings = torch.cartesian_prod(*[torch.tensor([0.0, 1e-4, 1.0, 0.1])] * 4)[1:].to(dtype)
    drawn = draw_categories(placings, torch.Size([3]))
    assert (placings.gather(1, drawn.T) > 0).all()


def test_any_batch_shape_and_a_seeded_generator() -> None:
    weights = torch.rand(2, 3, 5, generator=torch.Generator().manual_seed(0))
    shape = torch.Size([4])
    drawn = [draw_categories(weights, shape, torch.Generator().manual_seed(s)) for s in (1, 1, 2)]
    assert drawn[0].shape == (4, 2, 3)
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    assert draw_categories(weights[0, 0], torch.Size([0])).shape == (0,)
    assert draw_categories(weights[:0], torch.Size([2])).shape == (2, 0, 3)


def test_rows_of_unnormalised_weights_are_each_their_own() -> None:
    weights = torch.tensor([[0.0, 1e-30], [1e30, 0.0]])
    assert torch.equal(draw_categories(weights, torch.Size([3])), torch.tensor([[1, 0]] * 3))


@pytest.mark.parametrize("draws", [3, 40])
def test_counts_have_the_moments_of_the_multinomial(draws: int) -> None:
    """3 draws of 4 categories are drawn one by one, 40 category by category."""
    pi = torch.tensor([0.1, 0.0, 0.6, 0.3], dtype=torch.float64)
    samples = 20_000
    generator = torch.Generator().manual_seed(0)
    y = draw_counts(5 * pi, torch.tensor(draws), torch.Size([samples]), generator)
    assert torch.equal(y.sum(-1), torch.full((samples,), float(draws)).double())
    assert torch.equal(y[:, 1], torch.zeros(samples).double())
    variance = draws * pi * (1 - pi)
    assert ((y.mean(0) - draws * pi).abs() <= 5 * (variance / samples).sqrt()).all()
    covariance = draws * (torch.diag(pi) - torch.outer(pi, pi))
    # the standard error of a sample covariance is at most about 2 · variance / sqrt(samples)
    assert (torch.cov(y.T) - covariance).abs().max() <= 10 * variance.max() / samples**0.5


def test_counts_of_rows_with_different_totals() -> None:
    weights = torch.tensor([[1.0, 2.0, 0.0], [0.0, 0.0, 1e-30]])
    for totals in (torch.tensor([2, 0]), torch.tensor([1_000_000, 7])):
        y = draw_counts(weights, totals, torch.Size([50]), torch.Generator().manual_seed(1))
        assert torch.equal(y.sum(-1), totals.double().expand(50, 2))
        assert not y[..., 0, 2].any()
        assert not y[..., 1, :2].any()


@pytest.mark.usefixtures("path")
def test_a_sample_comes_with_its_differentiable_log_probability() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(4000, 5, generator=generator).requires_grad_()
    mask = torch.tensor([True, True, False, True, True])
    options = {"mask": mask, "temperature": 0.5, "softcap": 3.0}
    action, log_prob = el.categorical_sample(logits, **options, generator=generator)
    assert not (action == 2).any()
    expected = el.categorical_log_prob(logits, action, **options)
    torch.testing.assert_close(log_prob, expected)
    (ours,) = torch.autograd.grad(log_prob.sum(), logits)
    (theirs,) = torch.autograd.grad(expected.sum(), logits)
    torch.testing.assert_close(ours, theirs)
    # E[−log π(a)] is the entropy
    surprise = -log_prob.detach()
    entropy = el.categorical_entropy(logits, **options).mean()
    assert (surprise.mean() - entropy).abs() < 5 * surprise.std() / 4000**0.5


@pytest.mark.usefixtures("path")
def test_sampling_from_nan_or_from_nothing_is_an_error() -> None:
    with pytest.raises(el.errors.InvalidValueError) as caught:
        el.categorical_sample(torch.tensor([0.0, float("nan")]))
    assert str(caught.value) == (
        "`logits`: got NaN, expected numbers; "
        "find where the NaN arises, for instance 0 · inf or 0 / 0"
    )
    with pytest.raises(el.errors.InvalidValueError, match="a row without a legal action"):
        el.categorical_sample(torch.zeros(2), mask=torch.tensor([False, False]))


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize(
    "row", [[0.0, torch.inf], [torch.inf, torch.inf], [torch.nan, 0.0], [-torch.inf, -torch.inf]]
)
def test_rows_without_a_distribution_are_found(row: list[float], dtype: torch.dtype) -> None:
    with pytest.raises(InvalidValueError):
        el.categorical_sample(torch.tensor([[0.0, 1.0], row], dtype=dtype))
    extreme = torch.tensor([[0.0, -torch.inf], [1e30, -1e30]], dtype=dtype)
    assert el.categorical_sample(extreme)[0].tolist() == [0, 0]
