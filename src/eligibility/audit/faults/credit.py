"""Faults of the credit: what an action is reinforced with."""

from __future__ import annotations

from eligibility.audit.faults.fault import Fault

FAULTS = (
    Fault(
        id="mean-log-prob-times-sum-of-returns",
        title="mean(log_prob) × sum(returns)",
        means=(
            "every action is reinforced by the same number, the sum of all returns divided by the "
            "number of steps, so nothing distinguishes one action from another"
        ),
        fix="loss = -(log_probs * returns).sum()",
    ),
    Fault(
        id="broadcast",
        title="[B] × [B, 1] broadcasts to [B, B]",
        means=(
            "every log-probability is multiplied by every return, so each action is "
            "reinforced by their sum"
        ),
        fix="loss = -(log_probs.reshape(-1) * returns.reshape(-1)).sum()",
    ),
    Fault(
        id="immediate-reward",
        title="immediate reward instead of the return",
        means="an action is reinforced only by its immediate reward, as if it had no later "
        "consequences",
        fix="running = reward + gamma * running  # from the last step to the first",
    ),
    Fault(
        id="immediate-reward-twice",
        title="the immediate reward is counted twice",
        means="an action's immediate reward enters its return twice, and every later reward once",
        fix="advantage = returns - value  # the return already contains the reward of its own step",
    ),
    Fault(
        id="reversed-returns",
        title="returns in reversed order",
        means="the first action is reinforced by the last return and the last by the first",
        fix="returns.insert(0, running)  # or returns.reverse() after the loop",
    ),
    Fault(
        id="shifted-rewards",
        title="rewards shifted by one step",
        means="an action is reinforced by the return of the step after or before it",
        fix="rewards.append(reward)  # after env.step: at index t the reward that follows action t",
    ),
    Fault(
        id="rewards-so-far",
        title="rewards of the past",
        means=("an action is reinforced by earlier rewards, which it cannot have caused"),
        fix="returns = rewards.flip(0).cumsum(0).flip(0)  # or running = reward + gamma * running",
    ),
    Fault(
        id="discount-from-the-end",
        title="discount counted from the wrong end",
        means="the last reward of an episode counts fully and the first one least",
        fix="discounts = gamma ** torch.arange(len(rewards))  # ascending",
    ),
    Fault(
        id="last-step-dropped",
        title="the last step of an episode is left out",
        means="the last action of every episode is never reinforced",
        fix="loss = -(log_probs * returns).sum()  # over all steps",
        look=("cat", "log_probs"),
    ),
    Fault(
        id="last-reward-dropped",
        title="the last reward of an episode is dropped",
        means=(
            "no return includes the reward of the last action, often the only reward that "
            "distinguishes episodes"
        ),
        fix="rewards.append(reward)  # and keep the ends of episodes in a separate list",
    ),
    Fault(
        id="returns-unused",
        title="the returns are not used",
        means=(
            "every action is reinforced equally, as in imitation learning: the expected "
            "gradient is zero"
        ),
        fix="loss = -(log_probs * returns).sum()",
    ),
    Fault(
        id="integer-returns",
        title="returns are cut to integers",
        means="the returns are stored in an integer array, which truncates them",
        fix="returns = np.zeros(len(rewards), dtype=np.float64)",
    ),
    Fault(
        id="return-carried-over-episodes",
        title="return carried across the end of an episode",
        means=(
            "the return of an action includes rewards of later episodes, which it cannot influence"
        ),
        fix="running = reward + gamma * running * (1 - done)",
    ),
    Fault(
        id="return-carried-over-actors",
        title="return carried across parallel environments",
        means="the return of an action includes the rewards of other environments",
        fix="compute the returns of each environment separately",
    ),
    Fault(
        id="autoreset-step-trained-on",
        title="the autoreset step is trained on",
        means=(
            "after an episode ends, the vector environment resets and ignores the action, but the "
            "program still reinforces that action"
        ),
        fix=(
            "give the step after an end the weight 0, or use AutoresetMode.SAME_STEP and final_obs"
        ),
    ),
    Fault(
        id="wrong-sign",
        title="wrong sign",
        means="the update makes rewarded actions less likely",
        fix="loss = -(log_probs * returns).sum()  # optimizers minimise",
    ),
)
