"""What commonly goes wrong in policy-gradient training, said in plain words while it happens."""

from __future__ import annotations

# The share of the largest possible entropy below which a policy hardly tries anything new.
_COLLAPSED = 0.01


def diagnose(
    gradient_norm: float, entropy: float, largest_entropy: float | None, solved: bool
) -> str | None:
    """One sentence for the user, or None.

    Args:
        gradient_norm: Of the rollout's policy gradient.
        entropy: Mean entropy of the policy over the rollout's steps, in nats.
        largest_entropy: That of the uniform policy; None: there is none.
        solved: Whether the goal is reached: a policy may then be as certain as it likes.
    """
    if solved:
        return None
    if gradient_norm == 0:
        return (
            "all returns of a rollout were equal: there is nothing to learn from it; "
            "more environments make a difference more likely"
        )
    if largest_entropy is not None and entropy < _COLLAPSED * largest_entropy:
        return (
            "the policy hardly tries anything new (entropy below 1 % of its largest) and has not "
            "reached its goal; try a larger entropy coefficient or a smaller learning rate"
        )
    return None
