"""Programs that stop, or whose gradient is not a number, and what no rule explains."""

from __future__ import annotations

from eligibility.audit.faults.fault import Fault

FAULTS = (
    Fault(
        id="std-of-one-element",
        title="standard deviation of one element",
        means=(
            "the standard deviation of a one-step episode is undefined, so the gradient becomes NaN"
        ),
        fix="returns = (returns - returns.mean()) / (returns.std(correction=0) + 1e-8)",
    ),
    Fault(
        id="non-finite-gradient",
        title="gradient is not finite",
        means=(
            "on some episodes the gradient is NaN or infinite, and the update destroys the "
            "parameters"
        ),
        fix="guard the division or the logarithm",
    ),
    Fault(
        id="fails-on-some-episodes",
        title="the program stops on some episodes",
        means="on some episodes the program raises an error before its update",
        fix="keep the time dimension: do not squeeze() a batch that may have one row",
    ),
    Fault(
        id="unexplained",
        severity="warning",
        title="no known rule",
        means=(
            "the expected gradient is not the policy gradient, and no rule in the catalogue "
            "explains it; the audit cannot tell whether this is intended"
        ),
        fix="compare the weights below with those of REINFORCE",
    ),
)
