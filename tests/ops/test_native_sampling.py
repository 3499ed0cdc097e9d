"""The native sampler: its inversion at given numbers, its generator, its gradient."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import eligibility as el
from eligibility.ops.backends import cpu
from eligibility.ops.backends.row_task import RowTask
from eligibility.ops.rows import sample_node
from eligibility.ops.sampling import draw_categories

pytestmark = pytest.mark.skipif(not cpu.is_built(), reason="the native kernel was not built")
DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]


@pytest.fixture(params=range(len(cpu.INSTRUCTION_SETS)))
def instruction_set(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Runs the test with each instruction set that this processor has."""
    index = int(request.param)
    monkeypatch.setattr(cpu, "_instruction_set", lambda _: index)
    return index


def drawn(logits: Tensor, uniform: Tensor, mask: Tensor | None = None) -> Tensor:
    """What the kernel draws by these numbers, ``[S, N]``."""
    action = torch.full(uniform.shape[::-1], -7)
    cpu.run(RowTask(logits, action, mask=mask, uniform=uniform), log_prob=True)
    return action


@pytest.mark.parametrize("categories", [1, 2, 5, 16, 37, 200])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_category_has_its_interval_of_the_numbers(
    instruction_set: int, dtype: torch.dtype, categories: int
) -> None:
    generator = torch.Generator().manual_seed(categories)
    logits = (3 * torch.randn(2, categories, generator=generator)).to(dtype)
    logits[1, : categories // 3] = -torch.inf  # in front, in the middle, at the end
    logits[1, categories // 2 :: 4] = -torch.inf
    logits[1, -1] = -torch.inf if categories > 5 else 0.0
    pi = torch.softmax(logits.double(), -1)
    ends = pi.cumsum(-1)
    # The weights e^d are rounded to the numbers computed in: about one unit each.
    unit = 2.0**-51 if dtype == torch.float64 else 2.0**-22
    inside = torch.cat([ends - pi * (1 - 1e-3), ends - 0.5 * pi, ends - pi * 1e-3], -1)
    index = torch.arange(categories).repeat(3).expand(2, -1)
    is_clear = (pi.repeat(1, 3) * 1e-3 > unit) & (inside < 1)
    found = drawn(logits, inside.clamp(0, 1 - 2.0**-53)).T
    assert is_clear.any()
    assert torch.equal(found[is_clear], index[is_clear])
    edges = drawn(logits, torch.tensor([[0.0, 1 - 2.0**-53]] * 2, dtype=torch.float64))
    for row in range(2):
        possible = (pi[row] > 0).nonzero().flatten()
        assert edges[0, row] == possible[0]
        assert pi[row, edges[1, row]] > 0
        assert ends[row, edges[1, row]] > 1 - 4 * unit * categories


def test_two_hundred_thousand_equal_categories_are_each_drawn(instruction_set: int) -> None:
    """24 bits would miss or double many; the weights are 1, so that all sums are exact."""
    categories = 200_003
    middles = (torch.arange(categories, dtype=torch.float64) + 0.5) / categories
    found = drawn(torch.zeros(1, categories), middles.unsqueeze(0))
    assert torch.equal(found.flatten(), torch.arange(categories))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sample_shape", [(), (3,), (2, 2)])
def test_draws_are_those_of_the_plain_way_and_so_is_the_generator_afterwards(
    dtype: torch.dtype, sample_shape: tuple[int, ...]
) -> None:
    logits = torch.randn(50, 3, 9, generator=torch.Generator().manual_seed(1)).to(dtype)
    generators = [torch.Generator().manual_seed(5) for _ in range(2)]
    for _ in range(2):
        action, _ = el.categorical_sample(
            logits, sample_shape=sample_shape, generator=generators[0]
        )
        plain = draw_categories(logits.softmax(-1), torch.Size(sample_shape), generators[1])
        assert action.shape == (*sample_shape, 50, 3)
        assert torch.equal(action, plain)
    assert torch.equal(*(generator.get_state() for generator in generators))


def test_frequencies_are_the_probabilities(instruction_set: int) -> None:
    logits = torch.tensor([0.3, -torch.inf, 1.5, -2.0, 0.0, -torch.inf, -4.0, 2.0, -torch.inf])
    draws = 200_000
    action, log_prob = el.categorical_sample(
        logits, sample_shape=(draws,), generator=torch.Generator().manual_seed(0)
    )
    pi = logits.double().softmax(-1)
    counts = torch.bincount(action, minlength=9).double()
    assert not counts[pi == 0].any()
    expected = (draws * pi)[pi > 0]
    chi_square = ((counts[pi > 0] - expected) ** 2 / expected).sum()
    degrees = len(expected) - 1
    # 4 standard deviations above the mean of the distribution of chi-square
    assert chi_square < degrees + 4 * math.sqrt(2 * degrees)
    torch.testing.assert_close(log_prob, el.categorical_log_prob(logits, action))


@pytest.mark.parametrize("way", ["short", "long"])
def test_gradients_of_every_order_are_those_of_the_log_probability(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "long":
        monkeypatch.setattr(sample_node, "_MOST_AT_ONCE", 0)
    z = torch.randn(4, 6, dtype=torch.float64, requires_grad=True)
    action, log_prob = el.categorical_sample(z)
    again = el.categorical_log_prob(z, action)
    torch.testing.assert_close(log_prob, again)
    assert not action.requires_grad
    upstream = torch.randn(4, dtype=torch.float64, requires_grad=True)
    (ours,) = torch.autograd.grad(log_prob, z, upstream, retain_graph=True)
    (wanted,) = torch.autograd.grad(again, z, upstream, retain_graph=True)
    torch.testing.assert_close(ours, wanted)
    (expanded,) = torch.autograd.grad(log_prob.sum(), z, retain_graph=True)
    torch.testing.assert_close(expanded, torch.autograd.grad(again.sum(), z, retain_graph=True)[0])
    first = [torch.autograd.grad((x * x).sum(), z, create_graph=True)[0] for x in (log_prob, again)]
    second = [torch.autograd.grad((x * x).sum(), z, retain_graph=True)[0] for x in first]
    torch.testing.assert_close(*second)
    batched = torch.randn(3, 4, dtype=torch.float64)
    many = [torch.autograd.grad(x, z, batched, is_grads_batched=True)[0] for x in (log_prob, again)]
    torch.testing.assert_close(*many)


@pytest.mark.parametrize("dtype", DTYPES)
def test_samples_under_a_mask_in_threads(dtype: torch.dtype) -> None:
    before = torch.get_num_threads()
    logits = torch.randn(300, 700, generator=torch.Generator().manual_seed(3)).to(dtype)
    mask = torch.rand(300, 700, generator=torch.Generator().manual_seed(4)) < 0.3
    options = {"mask": mask, "temperature": 0.7, "softcap": 4.0, "sample_shape": (3,)}
    found = []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            generator = torch.Generator().manual_seed(2)
            found.append(el.categorical_sample(logits, generator=generator, **options))
    finally:
        torch.set_num_threads(before)
    (one, log_prob), (three, other) = found
    assert torch.equal(one, three)
    assert torch.equal(log_prob, other)
    assert mask.expand(3, -1, -1).gather(-1, one.unsqueeze(-1)).all()


def test_no_rows_and_one_category_and_rows_not_side_by_side() -> None:
    action, log_prob = el.categorical_sample(torch.zeros(0, 4))
    assert action.shape == log_prob.shape == (0,)
    action, log_prob = el.categorical_sample(torch.randn(5, 1))
    assert not action.any()
    assert not log_prob.any()
    z = torch.randn(7, 40, generator=torch.Generator().manual_seed(0))
    turned = z.t().contiguous().t()
    pair = [
        el.categorical_sample(x, generator=torch.Generator().manual_seed(1)) for x in (z, turned)
    ]
    assert torch.equal(pair[0][0], pair[1][0])
    # one number beyond a vector, which no load may take for a whole one
    odd = torch.empty(8).fill_(torch.nan)[1:6].copy_(torch.arange(5.0))
    action, _ = el.categorical_sample(odd, sample_shape=(100,))
    assert int(action.max()) <= 4
