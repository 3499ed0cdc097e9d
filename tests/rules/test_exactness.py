"""Every rule against a 200-digit reference, in every dtype: a few points of the full report."""

from __future__ import annotations

import mpmath as mp
import pytest
import torch

from benchmarks.exactness.families import FAMILIES
from benchmarks.exactness.family import Family
from benchmarks.exactness.measure import DTYPES, FEW, measure, ulps
from benchmarks.exactness.reference import DIGITS, condition, slopes

POINTS = 8


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "family", FAMILIES, ids=[f"{family.label}{i}" for i, family in enumerate(FAMILIES)]
)
def test_rule_is_exact_to_a_few_units_in_the_last_place(family: Family, dtype: torch.dtype) -> None:
    for result in measure(family, dtype, POINTS, seed=1):
        assert result.rule.bad == 0, f"{result.parameter}: {result.rule.where}"
        assert result.rule.worst <= FEW, f"{result.parameter}: {result.rule.where}"
        assert result.rule.ill_worst <= FEW, result.parameter
        if dtype in (torch.bfloat16, torch.float16):
            assert result.rule.worst < 0.502, "a single rounding"


def test_reference_finds_a_slope_that_is_known() -> None:
    """∂ ln(x y²)/∂y = 2/y, and its condition number is 1."""

    def density(x: mp.mpf, y: mp.mpf) -> mp.mpf:
        return mp.log(x * y**2)

    point = {"x": mp.mpf(3), "y": mp.mpf(7)}
    (slope,) = slopes(density, point, "y")
    with mp.workdps(DIGITS):
        assert abs(slope - mp.mpf(2) / 7) < mp.mpf("1e-50")
    found = condition(lambda p: slopes(density, p, "y")[0], point, ["x", "y"])
    assert float(found) == pytest.approx(1, rel=1e-9)


@pytest.mark.parametrize(
    ("got", "exact", "expected"),
    [
        (1.0, "1", 0),
        (1.0 + 2.0**-23, "1", 1),
        (float("nan"), "1", float("inf")),
        (0.0, "1e-30", float("inf")),
        (0.0, "1e-60", 0),  # below the smallest subnormal number, 0 is right
        (float("inf"), "1e39", 0),  # beyond the largest number, so is infinity
        (float("inf"), "1e30", float("inf")),
    ],
)
def test_units_in_the_last_place_of_float32(got: float, exact: str, expected: float) -> None:
    assert ulps(got, mp.mpf(exact), torch.float32) == pytest.approx(expected, abs=1e-9)
