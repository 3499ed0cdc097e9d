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
        example=(
            "baseline = 0.9 * baseline + 0.1 * returns.mean()\nadvantage = returns - baseline"
        ),
        note=(
            "A baseline may be anything that does not depend on the action: then it leaves the "
            "expectation unchanged (Williams 1992, §4). A moving average that already includes the "
            "returns of the current batch depends on the actions. If the baseline contains a "
            "fraction *a* of the batch's own return, the gradient of the whole-episode return "
            "shrinks by the factor 1 − *a*; with rewards-to-go its direction changes too.\n"
            "\n"
            "The audit measures the fraction of the batch's mean, or of its episodes' return, in "
            "the baseline. The mean of the batch alone, *a* = 1, is the convention `centred`.\n"
            "\n"
            "It is the same fault to train a critic on the batch before its values are subtracted "
            "from the batch's own returns. During an audit optimizers do not move the parameters, "
            "so the audit moves the critic a little after its step. If the policy's gradient for "
            "the same batch changes, the values were read too late. The bias is as large as that "
            "step."
        ),
        seen_in=(
            "We have no report to link. We have seen it in programs that keep an average of their "
            "returns."
        ),
        look=("baseline",),
    ),
    Fault(
        id="truncation-as-termination",
        title="truncation treated as termination",
        means="the value of the state at the time limit is taken to be zero",
        fix="target = reward + gamma * next_value * (1 - terminated)  # not (1 - done)",
        example="target = reward + gamma * next_value * (1 - (terminated or truncated))",
        seen_in="[vwxyzjn/cleanrl#457](https://github.com/vwxyzjn/cleanrl/issues/457).",
    ),
    Fault(
        id="bootstrapped-after-termination",
        title="bootstrap beyond the end of an episode",
        means="the value of a terminal state, which has no future, is added to the last reward",
        fix="target = reward + gamma * next_value * (1 - terminated)",
        example="target = reward + gamma * next_value",
        note=(
            "The gradients of one policy cannot always distinguish this from a correct bootstrap: "
            "a value v of the terminal state is equivalent to the values V − v and a constant "
            "baseline. So the audit repeats one path with a different observation at the end of "
            "the episode. If the policy's gradient changes, the program uses the state after the "
            "end."
        ),
        seen_in=(
            "[RoboVerseOrg/RoboVerse#814](https://github.com/RoboVerseOrg/RoboVerse/pull/814): "
            "the done flags were shifted by one step, so the value of the next episode's first "
            "state followed the last reward of an episode."
        ),
    ),
    Fault(
        id="bootstrapped-from-last-state",
        title="bootstrap from the last state that was acted in",
        means=(
            "the value of the last state stands for what follows its own action, so the return "
            "counts that state twice"
        ),
        fix="running = critic(next_obs).detach() * (1 - terminated)  # the state after the last action",
        example=(
            "running = values[-1].detach()      # V of the last stored state, not of the next one\n"
            "for reward in reversed(rewards):\n"
            "    running = reward + gamma * running"
        ),
        seen_in=(
            "[pavidhiman/cartpole-ppo](https://github.com/pavidhiman/cartpole-ppo/blob/"
            "27346d33c27f7909c36fe2d79baf0dde3930ac3c/main.py)."
        ),
        look=("values", "bootstrap", "last_value", "value"),
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
        example=(
            "td = reward + gamma * critic(next_obs) - critic(obs)   # both sides carry a gradient\n"
            "critic_loss = td.pow(2).mean()"
        ),
        note=(
            "The audit reads it from the graph of the loss: both sides of a squared (or absolute, "
            "or Huber) error lead to the same parameters. It changes the critic's gradient, not "
            "the policy's. The verdict on the policy gradient stays as it is, with this warning "
            "in addition. Baird's residual-gradient algorithm does it deliberately (Baird 1995, "
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
        means=("the policy loss also changes the critic: it lowers the value of likely actions"),
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
