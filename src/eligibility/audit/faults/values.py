"""Faults of baselines and critics."""

from __future__ import annotations

from eligibility.audit.faults.fault import Fault

FAULTS = (
    Fault(
        id="baseline-sees-own-return",
        title="the baseline is updated before it is used",
        means=(
            "the baseline contains part of each return from which it is subtracted, so a good "
            "episode is compared with itself"
        ),
        fix=("advantage = returns - baseline  # then update: baseline += rate * (mean - baseline)"),
        look=("baseline",),
    ),
    Fault(
        id="truncation-as-termination",
        title="truncation treated as termination",
        means="the value of the state at the time limit is taken to be zero",
        fix="target = reward + gamma * next_value * (1 - terminated)  # not (1 - done)",
    ),
    Fault(
        id="bootstrapped-after-termination",
        title="bootstrap beyond the end of an episode",
        means="the value of a terminal state, which has no future, is added to the last reward",
        fix="target = reward + gamma * next_value * (1 - terminated)",
    ),
    Fault(
        id="critic-target-not-detached",
        severity="warning",
        title="the critic's target is not detached",
        means=(
            "the squared error also moves the target towards the prediction, so its gradient is "
            "not that of temporal-difference learning"
        ),
        fix="target = reward + gamma * next_value.detach() * (1 - terminated)",
        look=("target", "targets", "td_target", "mse_loss"),
    ),
    Fault(
        id="advantage-not-detached",
        title="advantage not detached",
        means=("the policy loss also changes the critic: it lowers the value of likely actions"),
        fix="advantage = (returns - values).detach()",
    ),
)
