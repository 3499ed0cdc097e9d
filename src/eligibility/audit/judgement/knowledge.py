"""What each rule id means, in words: the same ids as the pages in ``docs/audit``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    """A fault or a convention.

    Attributes:
        title: A few words.
        means: One sentence: what the program computes instead.
        fix: A line of code or an instruction.
        look: Calls or words by which its statement is found in the program's text.
    """

    title: str
    means: str
    fix: str
    look: tuple[str, ...] = ()


# "a+b": a name, and another one that contains b
_ENDINGS = ("append+stop", "append+done", "append+mask", "append+term", "truncated", "terminated")
_RETURNS = ("returns", "discount", "gamma", "GAMMA", "insert", "append")

FAULTS = {
    "mean-log-prob-times-sum-of-returns": Rule(
        "mean(log_prob) × sum(returns)",
        "every action is reinforced by the same number, the sum of all returns over the number "
        "of steps, so no action is told apart from another",
        "loss = -(log_probs * returns).sum()",
    ),
    "broadcast": Rule(
        "[B] × [B, 1] broadcasts to [B, B]",
        "every log-probability is multiplied by every return, so each action is reinforced by "
        "their sum",
        "loss = -(log_probs.reshape(-1) * returns.reshape(-1)).sum()",
    ),
    "immediate-reward": Rule(
        "immediate reward instead of the return",
        "an action is reinforced by its own reward only, as if it had no consequences",
        "running = reward + gamma * running  # from the last step to the first",
        ("reward", "rewards"),
    ),
    "reversed-returns": Rule(
        "returns in reversed order",
        "the first action is reinforced by the last return and the last by the first",
        "returns.insert(0, running)  # or returns.reverse() after the loop",
        _RETURNS,
    ),
    "shifted-rewards": Rule(
        "rewards shifted by one step",
        "an action is reinforced by the return of the step after or before it",
        "store the reward that follows action t at index t",
        ("cat+returns", "roll", "returns", "append"),
    ),
    "rewards-so-far": Rule(
        "rewards of the past",
        "an action is reinforced by what was earned before it, which it cannot have caused",
        "for reward in reversed(rewards): running = reward + gamma * running",
        ("cumsum", "sum+returns"),
    ),
    "discount-from-the-end": Rule(
        "discount counted from the wrong end",
        "the last reward of an episode counts fully and the first one least",
        "discounts = gamma ** arange(T)  # ascending",
        _RETURNS,
    ),
    "probability-not-log-probability": Rule(
        "probability instead of its logarithm",
        "each action's gradient comes with the factor π(a|s), so rare actions learn least",
        "loss = -(dist.log_prob(action) * returns).sum()",
        ("log_prob", "exp"),
    ),
    "last-step-dropped": Rule(
        "the last step of an episode is left out",
        "the last action of every episode is never reinforced",
        "use all steps: log_probs and returns of the same length",
        ("cat", "log_probs"),
    ),
    "returns-unused": Rule(
        "the returns are not used",
        "every action is reinforced alike, as in imitation: the expected gradient is zero",
        "loss = -(log_probs * returns).sum()",
    ),
    "baseline-sees-own-return": Rule(
        "the baseline is updated before it is used",
        "part of each return is in the baseline that is subtracted from it, so that a good episode "
        "is compared with itself",
        "advantage = returns - baseline  # and only then: baseline += rate * (mean - baseline)",
        ("baseline",),
    ),
    "truncation-as-termination": Rule(
        "truncation treated as termination",
        "the value of the state in which the time limit struck is taken to be zero",
        "target = reward + gamma * next_value * (1 - terminated)  # not (1 - done)",
        _ENDINGS,
    ),
    "bootstrapped-after-termination": Rule(
        "bootstrap beyond the end of an episode",
        "the value of a state that has no future is added to the last reward",
        "target = reward + gamma * next_value * (1 - terminated)",
        _ENDINGS,
    ),
    "integer-returns": Rule(
        "returns are cut to integers",
        "the returns are stored in an integer array, which drops their fractions",
        "returns = np.zeros(len(rewards), dtype=np.float64)",
        (
            "long",
            "int",
            "int32",
            "int64",
            "LongTensor",
            "IntTensor",
            "astype",
            "zeros_like",
            "zeros",
            "empty_like",
        ),
    ),
    "return-carried-over-episodes": Rule(
        "return carried across the end of an episode",
        "the return of an action includes rewards of later episodes, on which it has no influence",
        "running = reward + gamma * running * (1 - done)",
        ("running", "R", "discounted_reward"),
    ),
    "return-carried-over-actors": Rule(
        "return carried across parallel environments",
        "the return of an action includes the rewards of other environments",
        "compute the returns of each environment on its own",
        _RETURNS,
    ),
    "last-reward-dropped": Rule(
        "the last reward of an episode is dropped",
        "what the last action earned, often the only reward that tells episodes apart, is not "
        "counted in any return",
        "keep the reward, and mark ends of episodes in a list of their own",
        ("reward+done", "reward"),
    ),
    "autoreset-step-trained-on": Rule(
        "the autoreset step is trained on",
        "after the end of an episode the vector environment resets and ignores the action, and "
        "the program reinforces that action nevertheless",
        "weigh the step after an end by 0, or use AutoresetMode.SAME_STEP and final_obs",
    ),
    "wrong-sign": Rule(
        "wrong sign",
        "the update makes rewarded actions less likely",
        "loss = -(log_probs * returns).sum()  # optimizers minimise",
    ),
    "entropy-sign": Rule(
        "entropy with the wrong sign",
        "the loss punishes entropy, so the policy is driven towards a deterministic one",
        "loss = policy_loss - entropy_coef * entropy",
        ("loss+entrop", "entropy", "entropies", "entropy_loss", "entropy_coef", "ent_coef"),
    ),
    "several-updates-without-ratio": Rule(
        "several updates on one batch without a ratio",
        "from the second update on the policy is no longer the one that acted, and nothing "
        "corrects for it",
        "ratio = (log_prob - old_log_prob).exp()  # or one update a batch",
    ),
    "gradients-not-zeroed": Rule(
        "gradients are not set to zero",
        "the gradient of an earlier update is added to that of the next one",
        "optimizer.zero_grad()  # before loss.backward()",
    ),
    "stale-batch": Rule(
        "data of an earlier update is used again",
        "the second update is computed from steps of the first one too, by a policy that no "
        "longer is what acted then",
        "log_probs.clear(); rewards.clear()  # after optimizer.step()",
        ("append+rewards", "append+reward", "extend", "append"),
    ),
    "stale-graph": Rule(
        "the graph of an earlier update is used again",
        "the second `backward` goes through operations of the first update, and fails or computes "
        "at parameters that are no more",
        "log_probs.clear()  # after optimizer.step(); detach what is carried over",
    ),
    "second-update-fails": Rule(
        "the program stops at its second update",
        "after a first update the program ends with an error before the second one",
        "start every update with empty lists, and with the shapes of the first one",
    ),
    "second-update-differs": Rule(
        "the second update does not follow the rule of the first",
        "something is carried over from the first update, and the expected gradient is no longer "
        "the policy gradient",
        "look for what is kept between updates: lists, statistics, states of environments",
    ),
    "old-log-prob-stale": Rule(
        "old log-probabilities are not refreshed",
        "the ratio compares the policy with one of an earlier update, not with the one that acted",
        "old_log_prob = dist.log_prob(action).detach()  # when the action is taken",
        ("old_log_probs", "old_log_prob", "exp"),
    ),
    "ratio-always-one": Rule(
        "the ratio is always 1",
        "the old log-probabilities are computed anew after each step, so nothing corrects for the "
        "steps before, and nothing is ever clipped",
        "old_log_probs = log_probs.detach()  # once, before the first epoch",
        ("exp",),
    ),
    "acting-policy-stale": Rule(
        "the network that acts is not updated",
        "actions come from the parameters of an earlier update, and no ratio corrects for it",
        "acting_policy.load_state_dict(policy.state_dict())  # after every update",
        ("load_state_dict", "deepcopy", "detach+copy"),
    ),
    "critic-target-not-detached": Rule(
        "the critic's target is not detached",
        "the squared error also moves the target towards the prediction, which is another "
        "gradient than that of a temporal difference",
        "target = reward + gamma * next_value.detach() * (1 - terminated)",
        ("target", "targets", "td_target", "mse_loss"),
    ),
    "no-gradient": Rule(
        "no gradient reaches the policy",
        "the loss does not depend on the policy's parameters, so they never change",
        "keep the log-probabilities as tensors: torch.stack(log_probs)",
        ("detach+log", "tensor+log", "detach", "no_grad", "item", "data"),
    ),
    "scored-other-action": Rule(
        "another action is scored than the one taken",
        "the log-probability belongs to an action that was not executed",
        "log_prob = dist.log_prob(action)  # of the action given to env.step",
        ("log_prob",),
    ),
    "component-not-scored": Rule(
        "a component of the action is not scored",
        "the action has several components, and the log-probability is that of one of them: the "
        "others never learn",
        "log_prob = dist.log_prob(action).sum(-1)  # over the components, not the batch",
        ("log_prob",),
    ),
    "most-likely-action-scored": Rule(
        "the most likely action is scored",
        "the log-probability is that of the most likely action, whichever was taken",
        "log_prob = dist.log_prob(action)  # of the action given to env.step",
        ("log_prob", "argmax", "max"),
    ),
    "behaviour-not-scored": Rule(
        "actions come from another distribution than the one scored",
        "the policy that acts is not the policy whose log-probability is differentiated",
        "sample and score with the same distribution object",
        ("log_prob", "log_softmax"),
    ),
    "mask-in-acting-only": Rule(
        "mask when acting, none when scoring",
        "illegal actions are excluded when sampling and counted when scoring",
        "apply the same mask to the logits that are scored",
        ("log_prob", "log_softmax"),
    ),
    "argmax-action": Rule(
        "actions are not sampled",
        "the most likely action is always taken; the score function needs a random one",
        "action = Categorical(logits=logits).sample()",
        ("argmax", "max", "topk", "mean"),
    ),
    "std-of-one-element": Rule(
        "standard deviation of one element",
        "an episode of one step has no standard deviation, and the gradient becomes NaN",
        "divide only if len(returns) > 1, or use std(correction=0)",
        ("std",),
    ),
    "non-finite-gradient": Rule(
        "gradient is not finite",
        "on some episodes the gradient is NaN or infinite, and the parameters are lost",
        "guard the division or the logarithm",
    ),
    "fails-on-some-episodes": Rule(
        "the program stops on some episodes",
        "on some episodes the program ends with an error before its update",
        "keep the time dimension: do not squeeze() a batch that may have one row",
    ),
    "advantage-not-detached": Rule(
        "advantage not detached",
        "the policy loss changes the critic too: it lowers the value of likely actions",
        "advantage = (returns - values).detach()",
        ("advantage", "values", "value"),
    ),
    "probs-as-logits": Rule(
        "probabilities passed as logits",
        "a second softmax is applied, so the policy can never become deterministic",
        "dist = Categorical(probs=probs)  # or pass the raw outputs as logits",
        ("Categorical",),
    ),
    "unexplained": Rule(
        "no known rule",
        "the expected gradient is not the policy gradient, and no rule of the catalogue gives it",
        "compare the weights below with the ones REINFORCE gives",
    ),
}

CONVENTIONS = {
    "gamma-t-dropped": "each action is weighed equally, without the factor γ^t of the discounted "
    "return's gradient",
    "whole-episode-return": "every action gets the return of its whole episode: no bias, more "
    "variance",
    "mean-over-time": "the sum over steps is divided by their number, so long batches count less",
    "mean-over-each-episode": "each episode is divided by its own length: short ones count more",
    "mean-over-episodes": "the sum is divided by the number of episodes",
    "centred": "the mean of the batch, which includes the action's own return, is subtracted",
    "whitened": "the returns are divided by their own standard deviation after centring",
    "scaled": "the returns are divided by their own standard deviation",
    "leave-one-out": "the mean of the other returns is subtracted",
    "entropy-bonus": "the gradient of the entropy is added",
    "constant-scale": "the gradient is multiplied by a constant",
    "baseline": "a function of the state is subtracted: no bias",
    "gradient-clipping": "the gradient's norm is limited; the audit looks at it before that",
    "rollout-cut": "an episode that the batch cuts short counts only the rewards seen, or the "
    "critic's estimate of the rest",
    "return-cut-at-update": "an episode goes on after the update, and what it earns there is never "
    "credited to the actions before it; the critic's value of the last state would stand for it",
    "gae": "generalised advantage estimation with λ < 1: later rewards count with powers of λ, and "
    "the critic's estimates make up for the rest",
    "bootstrapped": "later rewards are replaced by the critic's estimate: biased by its error",
    "shared-critic-parameters": "the critic's loss moves parameters of the policy too; the audit "
    "looks at those that are the policy's alone",
}
