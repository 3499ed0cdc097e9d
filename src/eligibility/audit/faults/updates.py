"""Faults that show from one update to the next."""

from __future__ import annotations

from eligibility.audit.faults.fault import Fault

FAULTS = (
    Fault(
        id="several-updates-without-ratio",
        title="several updates on one batch without a ratio",
        means=(
            "from the second update on, the policy is no longer the one that acted, and nothing "
            "corrects for the difference"
        ),
        fix="ratio = (log_prob - old_log_prob).exp()  # or one update per batch",
    ),
    Fault(
        id="gradients-not-zeroed",
        title="gradients are not set to zero",
        means="the gradient of an earlier update is added to that of the next one",
        fix="optimizer.zero_grad()  # before loss.backward()",
    ),
    Fault(
        id="stale-batch",
        title="data of an earlier update is used again",
        means=(
            "the second update also uses steps of the first one, although the policy is no longer "
            "the one that took them"
        ),
        fix="log_probs.clear(); rewards.clear()  # after optimizer.step()",
        look=("append+rewards", "append+reward", "extend", "append"),
    ),
    Fault(
        id="stale-graph",
        title="the graph of an earlier update is used again",
        means=(
            "the second `backward` goes through operations of the first update and fails, or uses "
            "parameter values that no longer exist"
        ),
        fix="log_probs.clear()  # after optimizer.step(); detach what is carried over",
    ),
    Fault(
        id="graph-used-twice",
        title="two losses go backward through one graph",
        means=(
            "the first `backward` frees the operations that the second one needs, so the "
            "program stops before its first update is complete"
        ),
        fix="advantage = (returns - values).detach()  # or one backward of the losses' sum",
    ),
    Fault(
        id="second-update-fails",
        title="the program stops at its second update",
        means="after its first update the program raises an error before the second one",
        fix="start every update with empty lists and with the shapes of the first update",
    ),
    Fault(
        id="second-update-differs",
        severity="warning",
        title="the second update does not follow the rule of the first",
        means=(
            "the first update leaves something behind, and the expected gradient of the second is "
            "not the policy gradient"
        ),
        fix=("look for anything kept between updates: lists, statistics, states of environments"),
    ),
    Fault(
        id="old-log-prob-stale",
        title="old log-probabilities are not refreshed",
        means=(
            "the ratio compares the policy with the policy of an earlier update, not with the one "
            "that acted"
        ),
        fix="old_log_prob = dist.log_prob(action).detach()  # when the action is taken",
        look=("old_log_probs", "old_log_prob", "exp"),
    ),
    Fault(
        id="ratio-always-one",
        title="the ratio is always 1",
        means=(
            "the old log-probabilities are recomputed after each step, so nothing corrects for "
            "the earlier steps and nothing is ever clipped"
        ),
        fix="old_log_probs = log_probs.detach()  # once, before the first epoch",
        look=("exp",),
    ),
    Fault(
        id="acting-policy-stale",
        title="the network that acts is not updated",
        means=(
            "actions come from the parameters of an earlier update, and no ratio corrects for it; "
            "a clipped ratio, or the ratio of a single action, is not enough"
        ),
        fix="acting_policy.load_state_dict(policy.state_dict())  # after every update",
        look=("load_state_dict", "deepcopy", "detach+copy"),
    ),
)
