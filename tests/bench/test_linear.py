"""The benchmark through the linear layer: who takes part, and what is said of them."""

from __future__ import annotations

import pytest

from eligibility.bench.linear import (
    PRODUCTS,
    Size,
    left_out,
    measure_linear,
    methods,
    read_size,
)
from eligibility.errors import InvalidValueError


@pytest.mark.parametrize("entropy_coef", [0.0, 0.01])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_method_computes_the_same_gradient(dtype: str, entropy_coef: float) -> None:
    figures = measure_linear(
        Size(24, 30, 8), dtype, entropy_coef, rounds=1, with_memory=False, only="l"
    )
    assert {figure.method for figure in figures} >= {PRODUCTS, "eligibility linear_reinforce_loss"}
    for figure in figures:
        assert figure.gradient_error < (1e-6 if dtype == "float32" else 2e-2), figure.method
        assert figure.ratio > 0
    assert figures[0].ratio == 1


def test_memory_is_that_of_a_process_of_its_own() -> None:
    size = Size(256, 8192, 256)
    figure = measure_linear(
        size, "float32", 0.0, rounds=1, with_memory=True, only="linear_reinforce_loss"
    )[1]
    gradients = 4 * (256 * 256 + 8192 * 256) / 2**20
    if figure.extra_peak_mib is not None:  # where the system tells it
        assert 0.5 * gradients < figure.extra_peak_mib < gradients + 64


def test_who_takes_no_part_has_a_reason() -> None:
    for beta in (0.0, 0.01):
        assert not set(methods(beta)) & set(left_out(beta))
    assert left_out(0.01)["torch linear_cross_entropy"] == "it has no entropy"


def test_sizes_are_read_or_refused() -> None:
    assert read_size("512x8192×256") == Size(512, 8192, 256)
    for text in ("512x8192", "0x1x1", "ax1x1", ""):
        with pytest.raises(InvalidValueError, match="tokens x vocabulary x features"):
            read_size(text)
