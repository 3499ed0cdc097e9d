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
        example="loss = -(log_probs.mean() * returns).sum()",
        seen_in=(
            "[Farama-Foundation/Gymnasium#1336](https://github.com/Farama-Foundation/Gymnasium/issues/1336): "
            "the tutorial's own script, for 19 months."
        ),
    ),
    Fault(
        id="broadcast",
        title="[B] × [B, 1] broadcasts to [B, B]",
        means=(
            "every log-probability is multiplied by every return, so each action is "
            "reinforced by their sum"
        ),
        fix="loss = -(log_probs.reshape(-1) * returns.reshape(-1)).sum()",
        example=("loss = -(log_probs * returns.unsqueeze(1)).sum()      # [T] × [T, 1] is [T, T]"),
        note=(
            "The audit also names it when it recognises no formula, if on every path all actions "
            "of several episodes got the same number."
        ),
        seen_in=(
            "[pytorch/rl#1243](https://github.com/pytorch/rl/issues/1243), "
            "[PacktPublishing/Deep-Reinforcement-Learning-Hands-On#33](https://github.com/PacktPublishing/Deep-Reinforcement-Learning-Hands-On/issues/33), "
            "[thu-ml/tianshou#162](https://github.com/thu-ml/tianshou/issues/162) "
            "(summed over the batch), ai.stackexchange question 41279."
        ),
    ),
    Fault(
        id="rewards-centred",
        title="the mean reward is subtracted before the rewards are summed",
        means=(
            "the mean of the batch's rewards is subtracted from each reward, and the rest is "
            "summed, so every later step of an episode is charged for that mean, and how long an "
            "episode lasts no longer counts for what it earns"
        ),
        fix="returns = (returns - returns.mean()) / (returns.std(correction=0) + 1e-8)  # not rewards",
        example=(
            "rewards = (rewards - rewards.mean()) / (rewards.std() + 1e-8)      # before the sum\n"
            "returns = rewards.flip(0).cumsum(0).flip(0)"
        ),
        note=(
            "In CartPole every reward is 1, and nothing is left. Schulman's advice in 'The Nuts "
            "and Bolts of Deep Reinforcement Learning Research' (2016) is to divide rewards by "
            "their deviation and not to shift their mean, which changes how much it pays to stay "
            "alive. Where all episodes have the same length, what is subtracted is a baseline, and "
            "the audit names no fault."
        ),
        seen_in="We found no thread with this cause.",
        look=("rewards.mean", "rewards", "std"),
    ),
    Fault(
        id="immediate-reward",
        title="immediate reward instead of the return",
        means="an action is reinforced only by its immediate reward, as if it had no later "
        "consequences",
        fix="running = reward + gamma * running  # from the last step to the first",
        example="returns = torch.tensor(rewards)",
        seen_in=(
            "[hunkim/ReinforcementZeroToAll#1](https://github.com/hunkim/ReinforcementZeroToAll/issues/1): "
            "each reward was discounted, but never added to the previous one."
        ),
    ),
    Fault(
        id="immediate-reward-twice",
        title="the immediate reward is counted twice",
        means="an action's immediate reward enters its return twice, and every later reward once",
        fix="advantage = returns - value  # the return already contains the reward of its own step",
        example="advantage = reward + returns - value",
    ),
    Fault(
        id="reversed-returns",
        title="returns in reversed order",
        means="the first action is reinforced by the last return and the last by the first",
        fix="returns.insert(0, running)  # or returns.reverse() after the loop",
        example=(
            "for reward in reversed(rewards):\n"
            "    running = reward + gamma * running\n"
            "    returns.append(running)"
        ),
        seen_in=(
            "[PacktPublishing/Tensorflow-2-Reinforcement-Learning-Cookbook#27](https://github.com/PacktPublishing/Tensorflow-2-Reinforcement-Learning-Cookbook/issues/27): "
            "`reverse()` stood inside the loop that collects the returns."
        ),
    ),
    Fault(
        id="shuffled-apart",
        title="only one of log-probabilities and returns is shuffled",
        means="each action is reinforced by the return of another step, chosen at random",
        fix="loss = -(log_probs[order] * returns[order]).mean()  # the same order for both",
        example=(
            "order = torch.randperm(len(returns))\nloss = -(log_probs * returns[order]).mean()"
        ),
        note=(
            "During an audit a shuffle keeps the order of the rows. One path is run again with the "
            "reversed order: the gradient must stay the same, and not become that of the same "
            "weights in reversed order."
        ),
        seen_in="We found no published case.",
        look=("randperm", "permutation", "shuffle"),
    ),
    Fault(
        id="shifted-rewards",
        title="rewards shifted by one step",
        means="an action is reinforced by the return of the step after or before it",
        fix="rewards.append(reward)  # after env.step: at index t the reward that follows action t",
        example="rewards.append(reward)      # before env.step: the reward of the step before",
        seen_in="[openai/spinningup#50](https://github.com/openai/spinningup/issues/50).",
    ),
    Fault(
        id="rewards-so-far",
        title="rewards of the past",
        means=("an action is reinforced by earlier rewards, which it cannot have caused"),
        fix="returns = rewards.flip(0).cumsum(0).flip(0)  # or running = reward + gamma * running",
        example="returns = torch.cumsum(rewards, 0)",
        seen_in=(
            "[mohmdelsayed/streaming-drl#3](https://github.com/mohmdelsayed/streaming-drl/issues/3): "
            "the return of a state was the discounted sum of past rewards."
        ),
    ),
    Fault(
        id="discount-from-the-end",
        title="discount counted from the wrong end",
        means="the last reward of an episode counts fully and the first one least",
        fix="discounts = gamma ** torch.arange(len(rewards))  # ascending",
        example=(
            "discounts = gamma ** torch.arange(T - 1, -1, -1)\n"
            "returns = (discounts * rewards).flip(0).cumsum(0).flip(0)"
        ),
        seen_in=(
            "[NVIDIA/NeMo-Agent-Toolkit#1613](https://github.com/NVIDIA/NeMo-Agent-Toolkit/issues/1613): "
            "exponents from T down to 0 where they should rise."
        ),
    ),
    Fault(
        id="last-step-dropped",
        title="the last step of an episode is left out",
        means="the last action of every episode is never reinforced",
        fix="loss = -(log_probs * returns).sum()  # over all steps",
        example="loss = -(log_probs[:-1] * returns[:-1]).sum()",
        note=(
            "Also where updates come within episodes, and a reset throws away what the episode that "
            "ended had left since the last update."
        ),
        seen_in=(
            "Gymnasium's tutorial "
            "[vector_a2c.py](https://github.com/Farama-Foundation/Gymnasium/blob/3f0476a8cc224dcce2167cc4b6971ae0f04d5cfc/docs/tutorials/training_agents/vector_a2c.py#L221): "
            "`for t in reversed(range(T - 1))` leaves the last step's advantage at 0."
        ),
        look=("cat", "log_probs"),
    ),
    Fault(
        id="only-last-step",
        title="only the last action is reinforced",
        means="the loss of each action replaces the one before it, so only the last one counts",
        fix="loss = -(log_probs * returns).sum()  # over all steps",
        example=(
            "for log_prob, ret in zip(log_probs, returns):\n"
            "    loss = -log_prob * ret            # each time a new one\n"
            "loss.backward()"
        ),
        seen_in="We found no published case.",
        look=("loss =",),
    ),
    Fault(
        id="last-reward-dropped",
        title="the last reward of an episode is dropped",
        means=(
            "no return includes the reward of the last action, often the only reward that "
            "distinguishes episodes"
        ),
        fix="rewards.append(reward)  # and keep the ends of episodes in a separate list",
        example="reward = 0 if done else reward  # a mark between episodes",
        seen_in=(
            "[Finspire13/pytorch-policy-gradient-example](https://github.com/Finspire13/pytorch-policy-gradient-example/blob/master/pg.py), "
            "and programs derived from it."
        ),
    ),
    Fault(
        id="returns-unused",
        title="the returns are not used",
        means=(
            "every action is reinforced equally, as in imitation learning: the expected "
            "gradient is zero"
        ),
        fix="loss = -(log_probs * returns).sum()",
        example="loss = F.cross_entropy(logits, actions)",
        seen_in=(
            "[Rochester-NRT/RocAlphaGo#166](https://github.com/Rochester-NRT/RocAlphaGo/issues/166) "
            "(cross-entropy as the loss)."
        ),
    ),
    Fault(
        id="integer-returns",
        title="returns are cut to integers",
        means="the returns are stored in an integer array, which truncates them",
        fix="returns = np.zeros(len(rewards), dtype=np.float64)",
        example="returns = np.zeros_like(actions)      # an integer array",
        note=(
            "Small changes of the rewards leave the weights unchanged, and large ones make them "
            "jump. The audit can therefore recognise it even where a critic's value is subtracted "
            "and the weights are not integers."
        ),
        seen_in="[MorvanZhou/Reinforcement-learning-with-tensorflow#128](https://github.com/MorvanZhou/Reinforcement-learning-with-tensorflow/issues/128).",
    ),
    Fault(
        id="return-carried-over-episodes",
        title="return carried across the end of an episode",
        means=(
            "the return of an action includes rewards of later episodes, which it cannot influence"
        ),
        fix="running = reward + gamma * running * (1 - done)",
        example=(
            "for reward in reversed(rewards_of_all_episodes):\n"
            "    running = reward + gamma * running"
        ),
        seen_in="[nikhilbarhate99/PPO-PyTorch#8](https://github.com/nikhilbarhate99/PPO-PyTorch/issues/8).",
    ),
    Fault(
        id="return-carried-over-actors",
        title="return carried across parallel environments",
        means="the return of an action includes the rewards of other environments",
        fix="compute the returns of each environment separately",
        example=(
            "for reward in reversed(rewards.flatten()):      # [T, N] of N environments\n"
            "    running = reward + gamma * running"
        ),
        seen_in="[pytorch/examples#1422](https://github.com/pytorch/examples/issues/1422).",
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
        example=(
            "obs, reward, terminated, truncated, _ = envs.step(action)  # the step after "
            "an end: ignored\n"
            "loss = -(log_probs * advantages).mean()                  # … and reinforced"
        ),
        seen_in=(
            "Programs that were written for Gymnasium 0.29, such as "
            "[vwxyzjn/cleanrl](https://github.com/vwxyzjn/cleanrl/blob/master/cleanrl/ppo.py), "
            "when they run\n"
            "under 1.x; and [Gymnasium's own tutorial on vector "
            "environments](https://github.com/Farama-Foundation/Gymnasium/blob/main/docs/tutorials/training_agents/vector_a2c.py)."
        ),
    ),
    Fault(
        id="wrong-sign",
        title="wrong sign",
        means="the update makes rewarded actions less likely",
        fix="loss = -(log_probs * returns).sum()  # optimizers minimise",
        example="loss = (log_probs * returns).sum()",
        seen_in=(
            "[fla-org/flash-linear-attention#1073](https://github.com/fla-org/flash-linear-attention/issues/1073): "
            "a GRPO loss was negated twice, once per token and once in the sum."
        ),
    ),
)
