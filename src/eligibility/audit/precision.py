"""How many digits a run has, and what may be lost of them."""

from __future__ import annotations

# In the text of errors that a program may owe to the precision it is run in.
DTYPE_WORDS = ("dtype", "Double", "Float", "scalar type", "float64", "float32")
UNIT_DOUBLE = 2.0**-53
UNIT_SINGLE = 2.0**-24
# Notes of a run: some of what leads to the gradient was computed in this precision all the same.
SINGLE, HALF = "single-precision", "half-precision"


def step_length(unit: float) -> float:
    """The distance ε of a central difference that balances truncation ε² and rounding u/ε."""
    return float(unit ** (1.0 / 3.0))


def tolerance(unit: float) -> float:
    """What a quantity computed by central differences can be off, relatively.

    Truncation is of order ε² and rounding of order u/ε, at ε = u^(1/3) both u^(2/3). The factor
    covers third derivatives of the policy and the condition of the equations that are solved. In
    single precision correct programs reach 8 (up to 256 units a layer, logits up to ±10), and more
    than 100 would hide biases of half a percent.
    """
    factor = 300.0 if unit == UNIT_DOUBLE else 100.0
    return float(factor * unit ** (2.0 / 3.0))
