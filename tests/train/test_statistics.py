"""Statistics over seeds and episodes, each against SciPy or a count by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.stats

from eligibility.errors import InvalidValueError
from eligibility.train.comparison import compare
from eligibility.train.evaluation import summarize
from eligibility.train.statistics import (
    difference,
    interquartile_mean,
    interval,
    mean,
    probability_of_improvement,
    resampled,
    units,
)

GENERATOR = np.random.default_rng(0)


@pytest.mark.parametrize("number", [1, 3, 4, 5, 11, 100])
def test_the_interquartile_mean_is_the_trimmed_mean(number: int) -> None:
    values = GENERATOR.exponential(size=(3, number))
    wanted = scipy.stats.trim_mean(values, 0.25, axis=-1)
    np.testing.assert_allclose(interquartile_mean(values), wanted, rtol=1e-12)


def test_the_interval_over_the_episodes_of_one_run_is_that_of_scipy() -> None:
    values = np.random.default_rng(1).normal(10, 3, size=400)
    got = interval(mean, values[None], seed=0)
    wanted = scipy.stats.bootstrap(
        (values,), np.mean, method="percentile", n_resamples=20_000, rng=np.random.default_rng(5)
    ).confidence_interval
    error = 3 / 400**0.5 / 10  # a tenth of the standard error of the mean
    assert got.low == pytest.approx(wanted.low, abs=error)
    assert got.high == pytest.approx(wanted.high, abs=error)
    assert got.low < got.value < got.high


def test_resampling_draws_runs_and_then_episodes_of_the_same_run() -> None:
    scores = np.array([[0.0, 1, 2], [10, 11, 12], [20, 21, 22]])
    drawn = resampled(scores, np.random.default_rng(0), number=500)
    assert drawn.shape == (500, 3, 3)
    runs = drawn // 10
    assert (runs == runs[:, :, :1]).all()
    assert {*np.unique(drawn)} == {*scores.flatten()}
    assert len({tuple(row) for row in runs[:, :, 0]}) == 27  # every choice of three runs


def test_an_interval_over_runs_is_wider_than_one_that_takes_episodes_for_runs() -> None:
    """With equal episodes within a run, only the runs are information."""
    scores = np.repeat([[100.0], [300.0], [500.0]], 50, axis=1)
    got = interval(mean, scores, seed=0)
    pooled = interval(mean, scores.reshape(1, -1), seed=0)
    assert got.high - got.low > 4 * (pooled.high - pooled.low)
    assert (got.low, got.high) == (100, 500)  # all draws of the worst run: probability 1/27 > 2.5 %


def test_units_are_runs_or_the_episodes_of_one() -> None:
    assert units(np.array([[1.0, 3.0]])).tolist() == [1, 3]
    assert units(np.array([[1.0, 3.0], [5.0, 6.0]])).tolist() == [2, 5.5]


def test_the_probability_of_improvement_is_the_share_of_won_pairs() -> None:
    a, b = np.array([[1.0, 2.0, 2.0, 7.0]]), np.array([[2.0, 3.0, 0.0]])
    wins = [(y > x) + (y == x) / 2 for x, y in itertools.product(a[0], b[0])]
    got = probability_of_improvement(a, b, seed=0)
    assert got.value == pytest.approx(np.mean(wins))
    statistic = scipy.stats.mannwhitneyu(b[0], a[0]).statistic
    assert got.value == pytest.approx(statistic / 12)
    assert 0 <= got.low < got.value < got.high <= 1


def test_a_clear_difference_is_called_clear() -> None:
    a = np.random.default_rng(2).normal(0, 1, size=(5, 20))
    better, alike = compare(a, a + 5, seed=0), compare(a, a, seed=0)
    assert better.is_clear
    assert better.probability_of_improvement.low == 1
    assert better.interquartile_difference.value == pytest.approx(5)
    assert better.mean_difference == difference(mean, a, a + 5, seed=0)
    assert not alike.is_clear
    assert alike.probability_of_improvement.value == 0.5


def test_one_run_against_several_is_refused() -> None:
    with pytest.raises(InvalidValueError, match=r"^the runs: got 1 against 2, expected"):
        compare(np.zeros((1, 3)), np.zeros((2, 3)), seed=0)


def test_a_summary_of_several_runs() -> None:
    got = summarize(np.array([[1.0, 3.0], [5.0, 7.0]]), seed=0)
    assert (got.runs, got.episodes, got.mean_return) == (2, 4, 4.0)
    assert (got.minimum, got.maximum, got.interquartile_mean) == (1, 7, 4)
    assert got.standard_deviation == pytest.approx(5**0.5)
