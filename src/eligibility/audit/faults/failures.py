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
        example=(
            "returns = (returns - returns.mean()) / (returns.std() + eps)      # NaN for one step"
        ),
        seen_in=(
            "[jolibrain/wheatley#93](https://github.com/jolibrain/wheatley/pull/93); division by "
            "a zero standard deviation of leave-one-out samples: "
            "[NVIDIA-NeMo/RL#1518](https://github.com/NVIDIA-NeMo/RL/issues/1518). The "
            "widespread `(R - R.mean()) / (R.std() + eps)` has this fault on one-step episodes."
        ),
    ),
    Fault(
        id="non-finite-gradient",
        title="gradient is not finite",
        means=(
            "on some episodes the gradient is NaN or infinite, and the update destroys the "
            "parameters"
        ),
        fix="guard the division or the logarithm",
        example=("log_prob = torch.log(probs)[action]      # a probability that underflows to 0"),
        seen_in=(
            "[ray-project/ray#846](https://github.com/ray-project/ray/issues/846): "
            "division by the standard deviation of rewards that are all zero; "
            "[thu-ml/tianshou#1298](https://github.com/thu-ml/tianshou/pull/1298): the "
            "same in a natural-gradient update."
        ),
    ),
    Fault(
        id="fails-on-some-episodes",
        title="the program stops on some episodes",
        means="on some episodes the program raises an error before its update",
        fix="keep the time dimension: do not squeeze() a batch that may have one row",
        example="log_probs = torch.cat(log_probs).squeeze()      # 0-dimensional for one step",
        note=(
            "If the program fails on the first path of the probe, the audit tries others, because "
            "an error that depends on the length of an episode does not occur on all of them. It "
            "is a warning in addition to the verdict on the episodes that run. If paths with most "
            "of the probability fail, the rest proves nothing: then it is a fault, and the "
            "verdict is inconclusive. If the numbers in torch's message match an action of "
            "several components, the report asks whether their log-probabilities are summed."
        ),
        seen_in=(
            "[ray-project/ray#25872](https://github.com/ray-project/ray/issues/25872): "
            "episodes of a single step, and `squeeze()` without a dimension."
        ),
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
        note=(
            "The expected gradient of the program differs from the policy gradient by "
            "more than rounding, and no composition of the catalogue reproduces the "
            "gradients of all paths. For one path, the report prints the weight that each action "
            "actually got next to the weight that REINFORCE gives. Look for a weight that does "
            "not depend on later rewards, or for a gradient outside the span of the executed "
            "actions' eligibilities.\n\nAn unknown rule is not called a fault: the verdict is "
            "`unexplained` and the exit status is 3. Your own estimator, a regulariser or a "
            "wrapper that repeats actions ends here, and so does a mistake that the catalogue "
            "lacks."
        ),
    ),
)
