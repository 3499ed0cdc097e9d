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
        example=(
            "for epoch in range(4):\n"
            "    loss = -(policy.log_prob(actions) * advantages).mean()\n"
            "    optimizer.zero_grad(); loss.backward(); optimizer.step()"
        ),
        note=(
            "The audit keeps the parameters still, so it sees several optimizer steps "
            "with the same gradient on the same data, and no ratio of probabilities "
            "exp(new − old) in the loss. The first step is right; the later ones are not."
        ),
        seen_in="[ray-project/ray#27314](https://github.com/ray-project/ray/issues/27314).",
    ),
    Fault(
        id="gradients-not-zeroed",
        title="gradients are not set to zero",
        means="the gradient of an earlier update is added to that of the next one",
        fix="optimizer.zero_grad()  # before loss.backward()",
        example=(
            "loss.backward()\n"
            "optimizer.step()  # the next episode starts while p.grad still holds this "
            "episode's gradient"
        ),
        note=(
            "The audit sees this directly: when `backward` begins, a gradient that an earlier "
            "step used is still there unchanged, and the next step uses the sum. Accumulating "
            "gradients over micro-batches *before* a step is not a fault, because no step has "
            "used them yet. The size tells how much of the step's gradient is old."
        ),
        seen_in=(
            "We found no published case. A related one, `zero_grad` in the wrong place during "
            "accumulation over micro-batches, is "
            "[huggingface/trl#583](https://github.com/huggingface/trl/issues/583)."
        ),
    ),
    Fault(
        id="stale-batch",
        title="data of an earlier update is used again",
        means=(
            "the second update also uses steps of the first one, although the policy is no longer "
            "the one that took them"
        ),
        fix="log_probs.clear(); rewards.clear()  # after optimizer.step()",
        example=(
            "for update in range(updates):\n"
            "    buffer.extend(collect())          # never emptied\n"
            "    loss = -(log_prob(buffer) * buffer.returns).sum()"
        ),
        note=(
            "The audit runs the first update on one path and the second one on all paths. The "
            "steps of both updates together explain the gradient of the second update, and its own "
            "steps alone do not. In the other form, the rewards are kept and the log-probabilities "
            "are not, so `zip` pairs new actions with the returns of old ones."
        ),
        seen_in=(
            "[tensorflow/agents#227](https://github.com/tensorflow/agents/issues/227) asks why "
            "PPO's buffer is cleared in each iteration; without clearing, it raised an error."
        ),
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
        example=(
            "loss = -(torch.stack(all_log_probs) * returns).sum()   # of earlier episodes too\n"
            "loss.backward()"
        ),
        note=(
            "torch itself raises the error: *Trying to backward through the graph a second time*, "
            "or, with `retain_graph=True`, *modified by an inplace operation*, because the "
            "optimizer has moved the parameters that the old graph needs. The second message "
            "appears only if parameters move, so the audit moves them once between the updates."
        ),
        seen_in=(
            "[pytorch/examples#151](https://github.com/pytorch/examples/issues/151): "
            "`finish_episode` was called again on steps of earlier episodes."
        ),
    ),
    Fault(
        id="graph-used-twice",
        title="two losses go backward through one graph",
        means=(
            "the first `backward` frees the operations that the second one needs, so the "
            "program stops before its first update is complete"
        ),
        fix="advantage = (returns - values).detach()  # or one backward of the losses' sum",
        example=(
            "advantage = returns - values\n"
            "(-(log_probs * advantage).sum()).backward()\n"
            "(values - returns).pow(2).mean().backward()   # `values` has lost its graph"
        ),
        note=(
            "torch itself raises the error: *Trying to backward through the graph a second time*. "
            "`retain_graph=True` silences it, but then the policy's loss also trains the critic, "
            "which is [advantage not detached](advantage-not-detached.md). If the two passes are "
            "epochs on one batch, recompute the log-probabilities in each."
        ),
        seen_in=(
            "[pytorch/rl#1187](https://github.com/pytorch/rl/issues/1187): the loss of an "
            "actor and that of its critics shared a graph."
        ),
    ),
    Fault(
        id="second-update-fails",
        title="the program stops at its second update",
        means="after its first update the program raises an error before the second one",
        fix="start every update with empty lists and with the shapes of the first update",
        example=(
            "returns = torch.tensor(rewards_of_all_episodes)\n"
            "loss = -(torch.stack(log_probs) * returns).sum()   # two lengths from the "
            "second episode on"
        ),
        note=(
            "The first update runs, and on every path the program raises an error before the "
            "second one. The report gives the error and its line."
        ),
        seen_in=(
            "We found no thread about exactly this. A similar case is "
            "[Lightning-Universe/lightning-bolts#381](https://github.com/Lightning-Universe/lightning-bolts/issues/381): "
            "the first updates run, but a later batch does not have the size that the loss expects."
        ),
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
        example=(
            "env_steps += len(rewards)\n"
            "returns = returns * 0.5 ** (log_probs.mean() * env_steps)   # state that "
            "the choices of this batch decide"
        ),
        note=(
            "With the first update fixed to one path, the expected gradient of the second update "
            "must be the policy gradient too, whatever is carried over. A running baseline, for "
            "example, is then a constant and adds no bias. Here the gradient differs, and none of "
            "the named rules explains why. The weights in the report are those "
            "of the second update. It may be intended, like running statistics of the rewards: "
            "the verdict is `unexplained`, and the exit status is 3."
        ),
        seen_in=(
            "[ikostrikov/pytorch-a2c-ppo-acktr-gail#278](https://github.com/ikostrikov/pytorch-a2c-ppo-acktr-gail/issues/278) "
            "asks about one form of it: a recurrent policy starts the next rollout from a hidden "
            "state computed before the update."
        ),
    ),
    Fault(
        id="old-log-prob-stale",
        title="old log-probabilities are not refreshed",
        means=(
            "the ratio compares the policy with the policy of an earlier update, not with the one "
            "that acted"
        ),
        fix="old_log_prob = dist.log_prob(action).detach()  # when the action is taken",
        example=(
            "old_log_probs = compute(batch)        # once, before training\n"
            "for update in range(updates):\n"
            "    ratio = (log_prob(batch) - old_log_probs).exp()"
        ),
        note=(
            "The audit moves the parameters between the first update and the second. The moved "
            "policy then draws the actions of the second update and is also the policy that is "
            "scored. So the ratio must be 1 at the first step of that update, as it was in the "
            "first. It is not. This does not apply to a program that deliberately acts by an "
            "older policy and corrects by the ratio: there the moved policy does not draw the "
            "actions. Of a language model, the weights show a ratio to the reference in place of the "
            "policy that drew the answers."
        ),
        seen_in=(
            "[CarperAI/trlx#107](https://github.com/CarperAI/trlx/issues/107) shows the same "
            "symptom, a ratio that is not 1 at the first step, with a different cause, a missing "
            "attention mask; [gbhasin0828/grpo-lite](https://github.com/gbhasin0828/grpo-lite/blob/"
            "5fb6704f5cb9ba9fb6e7edadd5f2d3f543173b02/main.py#L321) divides by the reference."
        ),
        look=("old_log_probs", "old_log_prob", "exp"),
    ),
    Fault(
        id="clip-bounds-swapped",
        title="the lower bound of the clip is above the upper one",
        means=(
            "the clipped ratio is the same number for every ratio, so that actions with an "
            "advantage of one sign get no gradient at all"
        ),
        fix="clipped = torch.clamp(ratio, 1 - eps, 1 + eps)  # the lower bound comes first",
        example=(
            "clipped = torch.clamp(ratio, 1 + eps, 1 - eps)   # 1 - eps, whatever the ratio\n"
            "loss = -torch.min(ratio * adv, clipped * adv).mean()"
        ),
        note=(
            "`torch.clamp` returns its upper bound where the lower one is above it. The audit reads "
            "both from the graph of the loss."
        ),
        seen_in=(
            "[GidonPark/RL-Algorithms](https://github.com/GidonPark/RL-Algorithms/blob/"
            "dbe250c3bb295c6553eff2d9cb3ca112bd1f6284/algorithms/PPO.py#L88)."
        ),
    ),
    Fault(
        id="ratio-always-one",
        title="the ratio is always 1",
        means=(
            "the old log-probabilities are recomputed after each step, so nothing corrects for "
            "the earlier steps and nothing is ever clipped"
        ),
        fix="old_log_probs = log_probs.detach()  # once, before the first epoch",
        example=(
            "for epoch in range(4):\n"
            "    log_probs = policy.log_prob(actions)\n"
            "    ratio = (log_probs - log_probs.detach()).exp()   # 1, whatever the policy\n"
            "    loss = -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()"
        ),
        note=(
            "The audit moves the parameters after the first optimizer step on a batch. "
            "In the following steps the ratio in the loss is still exactly 1, because the old "
            "log-probabilities moved as well."
        ),
        seen_in=(
            "[tensorforce/tensorforce#312](https://github.com/tensorforce/tensorforce/issues/312), "
            "[higgsfield-ai/higgsfield#20](https://github.com/higgsfield-ai/higgsfield/issues/20), "
            "[abhisheksuran/Reinforcement_Learning#4](https://github.com/abhisheksuran/Reinforcement_Learning/issues/4)."
        ),
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
        example=(
            "actor = copy.deepcopy(policy)        # and never loaded again\n"
            "...\n"
            "action = Categorical(logits=actor(obs)).sample()\n"
            "loss = -(Categorical(logits=policy(obs)).log_prob(action) * G)"
        ),
        note=(
            "Before the first update both networks are equal, so nothing shows. The audit then "
            "moves every parameter that an optimizer trains. The actions of the second update "
            "still come from the earlier probabilities, and the loss contains no ratio. If the "
            "loss contains a ratio, the audit runs eight more updates. A copy that is refreshed "
            "within them is a choice. A copy that is not refreshed is a fault if the ratio is "
            "clipped, and a warning otherwise. The ratio of a whole path's probability is exact. "
            "The ratio of one action leaves the states and the later rewards to the old policy, "
            "which is exact only in one-step episodes. If it is clipped, every action that has "
            "become 20 % more or less likely stops learning."
        ),
        seen_in=(
            "[nikhilbarhate99/PPO-PyTorch#10](https://github.com/nikhilbarhate99/PPO-PyTorch/issues/10) "
            "has the same fault at the start: the acting copy was not loaded from the policy "
            "before the first update."
        ),
        look=("load_state_dict", "deepcopy", "detach+copy"),
    ),
)
