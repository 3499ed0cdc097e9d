"""Numbers that a program may mean by γ and λ, and where they come from."""

from __future__ import annotations

from dataclasses import dataclass

from eligibility.audit.judgement.catalogue import Told

# Where a discount comes from, as the report says it.
GIVEN, MEASURED, TEXT = (
    "as given",
    "measured: the powers in its weights",
    "from the program's source",
)
CONFIRMED = "its gradients confirm it, with γλ as measured"
FITTED = "measured: with it the expected gradient is exact"
LEAST = "not measured: the value with the least bias among 1 and the numbers in the source"
ONE_STEP = "every episode has one step"
USUAL, NOT_FOUND = "a usual value, which its gradients confirm", "not found: 1"
_SAME_CONSTANT = 1e-4  # relative difference of measured constants that is none


@dataclass(frozen=True)
class Constants:
    """Numbers that the program may mean.

    Attributes:
        discounts: γ.
        decays: λ.
        product: γλ, where it was measured.
        origin: Where the discounts come from: one of the words above.
        told: What the measured credit says of the compositions; None: nothing.
    """

    discounts: tuple[float, ...] = (0.99, 0.9, 0.95, 1.0)
    decays: tuple[float, ...] = (0.0, 1.0, 0.95)
    product: float | None = None
    origin: str = USUAL
    told: Told | None = None

    def decays_at(self, discount: float) -> tuple[float, ...]:
        """The λ that may go with a γ."""
        if self.product is None:
            return self.decays
        decay = self.product / discount if discount else 2.0
        if abs(decay - 1.0) < _SAME_CONSTANT:
            return (1.0,)
        return (decay,) if decay < 1.0 else ()
