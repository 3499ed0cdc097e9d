"""Random losses against float64, here a few; `python -m tests.ops.random_losses 4000` for many."""

from __future__ import annotations

import pytest

from tests.ops.random_losses import drawn, excess


@pytest.mark.parametrize("block", range(8))
def test_random_losses_and_gradients_are_those_of_float64(block: int) -> None:
    for seed in range(40 * block, 40 * (block + 1)):
        function, given, layout = drawn(seed)
        assert excess(function, given) <= 1, f"{function}, {layout}, seed {seed}"
