"""What commonly goes wrong in policy-gradient training, said in plain words while it happens."""

from __future__ import annotations

from eligibility.train.gradient import GradientStatistics

# The share of the largest possible entropy below which a policy hardly tries anything new.
_COLLAPSED = 0.01
# The share of saturated steps from which on almost none teaches anything.
_MOSTLY_SATURATED = 0.95
# An explained variance below this: the returns are far noisier with the baseline than without.
# Leave-one-out reaches -3 with two episodes, where it is still the best there is.
_HARMFUL = -4.0


def diagnose(found: GradientStatistics, largest_entropy: float | None, solved: bool) -> str | None:
    """One sentence for the user, or None; ``largest_entropy`` is the uniform policy's, in nats."""
    if solved:
        return None
    if found.gradient_norm == 0:
        return (
            "all returns of a rollout were equal, so it teaches nothing; with more environments a "
            "difference is more likely"
        )
    if largest_entropy is not None and found.entropy < _COLLAPSED * largest_entropy:
        return (
            "the policy hardly explores (entropy below 1 % of the maximum) and has not reached "
            "its goal; try a larger entropy coefficient or a smaller learning rate"
        )
    if found.saturated > _MOSTLY_SATURATED:
        return (
            "the policy is nearly deterministic at more than 95 % of the steps, which teach "
            "nothing, and has not reached its goal; try a larger entropy coefficient or a smaller "
            "learning rate"
        )
    if found.explained_variance < _HARMFUL:
        return (
            "the baseline makes the returns noisier than no baseline would; "
            "try --baseline time-dependent-leave-one-out"
        )
    return None
