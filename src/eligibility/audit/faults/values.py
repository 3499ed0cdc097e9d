"""Faults of baselines and critics."""

from __future__ import annotations

from eligibility.audit.faults.fault import Fault

FAULTS = (
    Fault(
        id="baseline-sees-own-return",
        title="the baseline is updated before it is used",
        means=(
            "part of each return is in the baseline that is subtracted from it, so that "
            "a good episode is compared with itself"
        ),
        fix=(
            "advantage = returns - baseline  # and only then: baseline += rate * (mean - baseline)"
        ),
        example=(
            "baseline = 0.9 * baseline + 0.1 * returns.mean()\nadvantage = returns - baseline"
        ),
        note=(
            "A baseline may be anything that does not depend on the action: then it "
            "changes no expectation (Williams 1992, §4). A moving average that has just "
            "taken in the returns of the present batch depends on them. Where the "
            "baseline is a share *a* of the batch's own return, the gradient of the "
            "whole-episode return shrinks by the factor 1 − *a*; with rewards-to-go its "
            "direction changes too.\n"
            "\n"
            "The audit finds the share with which the batch's mean, or its episodes' "
            "return, has entered. The mean of the batch alone, *a* = 1, is the "
            "convention `centred`.\n"
            "\n"
            "A critic that is trained on the batch before its values are subtracted from "
            "the batch's own returns is the same fault. Optimizers move nothing while a "
            "program is audited, so the audit moves the critic a little after its step: "
            "if the policy's gradient for the same batch changes, the values were read "
            "too late. The bias is of the size of that step."
        ),
        seen_in=(
            "Nobody whose report is linked here. It is found by eye in programs that "
            "keep an average of their returns."
        ),
        look=("baseline",),
    ),
    Fault(
        id="truncation-as-termination",
        title="truncation treated as termination",
        means="the value of the state in which the time limit struck is taken to be zero",
        fix="target = reward + gamma * next_value * (1 - terminated)  # not (1 - done)",
        example="target = reward + gamma * next_value * (1 - (terminated or truncated))",
        seen_in="[vwxyzjn/cleanrl#457](https://github.com/vwxyzjn/cleanrl/issues/457).",
    ),
    Fault(
        id="bootstrapped-after-termination",
        title="bootstrap beyond the end of an episode",
        means="the value of a state that has no future is added to the last reward",
        fix="target = reward + gamma * next_value * (1 - terminated)",
        example="target = reward + gamma * next_value",
        note=(
            "From the gradients of one policy this cannot always be told from a right "
            "bootstrap: a value v of the terminal state is the same as the values V − v "
            "and a constant baseline. So the audit runs one path once more with another "
            "observation at the end of the episode. If the policy's gradient then is "
            "another one, the program looks beyond the end."
        ),
        seen_in=(
            "[RoboVerseOrg/RoboVerse#814](https://github.com/RoboVerseOrg/RoboVerse/pull/814): "
            "the flags of the ends were shifted by one step, so the last reward of an "
            "episode was followed by the value of the next one's first state."
        ),
    ),
    Fault(
        id="critic-target-not-detached",
        severity="warning",
        title="the critic's target is not detached",
        means=(
            "the squared error also moves the target towards the prediction, which is "
            "another gradient than that of a temporal difference"
        ),
        fix="target = reward + gamma * next_value.detach() * (1 - terminated)",
        example=(
            "td = reward + gamma * critic(next_obs) - critic(obs)   # both sides carry a "
            "gradient\n"
            "critic_loss = td.pow(2).mean()"
        ),
        note=(
            "Seen in the graph of the loss: the two sides of a squared (or absolute, or "
            "Huber) error lead to the same parameters. It is the critic's gradient that is "
            "another one: the verdict on the policy's stays as it is, and this is a warning "
            "next to it. Baird's residual-gradient algorithm does it on purpose (Baird 1995, "
            "*Residual algorithms*)."
        ),
        seen_in=(
            "[Farama-Foundation/Gymnasium#1494](https://github.com/Farama-Foundation/Gymnasium/issues/1494), "
            "[philtabor/Youtube-Code-Repository#41](https://github.com/philtabor/Youtube-Code-Repository/issues/41) "
            "(TensorFlow)."
        ),
        look=("target", "targets", "td_target", "mse_loss"),
    ),
    Fault(
        id="advantage-not-detached",
        title="advantage not detached",
        means=("the policy loss changes the critic too: it lowers the value of likely actions"),
        fix="advantage = (returns - values).detach()",
        example=(
            "advantage = returns - values\nloss = -(log_probs * advantage).sum() + value_loss"
        ),
        seen_in=(
            "[keras-team/keras-io#194](https://github.com/keras-team/keras-io/issues/194); "
            "[Farama-Foundation/Gymnasium#1494](https://github.com/Farama-Foundation/Gymnasium/issues/1494) "
            "(the target)."
        ),
    ),
)
