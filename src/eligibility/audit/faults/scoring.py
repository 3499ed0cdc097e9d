"""Faults of the score: which log-probability is differentiated."""

from __future__ import annotations

from eligibility.audit.faults.fault import Fault

FAULTS = (
    Fault(
        id="probability-not-log-probability",
        title="probability instead of its logarithm",
        means=("each action's gradient is multiplied by π(a|s), so rare actions learn least"),
        fix="loss = -(dist.log_prob(action) * returns).sum()",
        example="loss = -(dist.log_prob(action).exp() * returns).sum()",
        seen_in=(
            "We found no thread about a program with this fault; [cs.stackexchange "
            "70518](https://cs.stackexchange.com/questions/70518/why-do-we-use-the-log-in-gradient-based-reinforcement-algorithms) "
            "asks why the logarithm is there."
        ),
    ),
    Fault(
        id="scored-other-action",
        title="another action is scored than the one taken",
        means="the log-probability belongs to an action that was not executed",
        fix="log_prob = dist.log_prob(action)  # of the action given to env.step",
        example=(
            "env.step(dist.sample())\nlog_prob = dist.log_prob(dist.sample())      # another draw"
        ),
        note=(
            "If the scored action was executed, but was computed by tanh or clip from the number "
            "that was sampled, the fault is `transformed-action-scored`."
        ),
        look=("log_prob",),
    ),
    Fault(
        id="transformed-action-scored",
        title="the action is scored by the distribution of what it was made from",
        means=(
            "the action was computed from the sampled number by tanh, clip or a similar function, "
            "but it is scored as if it had been sampled itself"
        ),
        fix="log_prob = dist.log_prob(u)  # of the sampled number, u = dist.sample()",
        example=(
            "u = dist.sample()\n"
            "action = 2 * torch.tanh(u)\n"
            "env.step(action)\n"
            "log_prob = dist.log_prob(action)      # the density of u at a different number"
        ),
        note=(
            "The sampled, the executed and the scored value are three numbers. Here the last two "
            "are equal, and the first differs. The score of u is right without the volume term of "
            "the change of variables, which does not depend on the parameters; with "
            "`TransformedDistribution(dist, [TanhTransform()])` the action itself can be scored."
        ),
        seen_in=(
            "[ray-project/ray#8889](https://github.com/ray-project/ray/issues/8889) and "
            "[thu-ml/tianshou#312](https://github.com/thu-ml/tianshou/issues/312): the clipped "
            "action was stored and scored instead of the sampled one; PPO did not learn."
        ),
        look=("log_prob",),
    ),
    Fault(
        id="action-keeps-its-graph",
        title="the action that is scored carries a gradient",
        means=(
            "the action is sampled as mean + scale × noise and keeps its graph, so the mean "
            "cancels in the log-probability and only the scale is trained"
        ),
        fix="action = dist.sample()  # or dist.rsample().detach()",
        example="action = dist.rsample()\nlog_prob = dist.log_prob(action)      # ∂/∂mean is 0",
        note=(
            "ln N(m + σz; m, σ²) is −ln σ − z²/2: its gradient is −∂ ln σ for every action. The "
            "audit finds that this vector, used in place of each eligibility, explains every path."
        ),
        look=("rsample", "log_prob"),
    ),
    Fault(
        id="component-not-scored",
        title="a component of the action is not scored",
        means=(
            "the action has several components, but the log-probability is that of only one of "
            "them: the others never learn"
        ),
        fix=("log_prob = dist.log_prob(action).sum(-1)  # over the components, not the batch"),
        example="log_prob = dist.log_prob(action)[..., 0]      # of two components",
        seen_in=(
            "We found no thread with this cause. Its symptom appears in "
            "[iffiX/machin#16](https://github.com/iffiX/machin/issues/16): the action had a "
            "discrete and a continuous part, and only one learned."
        ),
        look=("log_prob",),
    ),
    Fault(
        id="most-likely-action-scored",
        title="the most likely action is scored",
        means="the log-probability is always that of the most likely action, whichever action was "
        "taken",
        fix="log_prob = dist.log_prob(action)  # of the action given to env.step",
        example=("action = dist.sample()\nlog_prob = dist.log_prob(dist.probs.argmax(-1))"),
        seen_in="[henrywoo/chatllama#7](https://github.com/henrywoo/chatllama/issues/7).",
        look=("log_prob", "argmax", "max"),
    ),
    Fault(
        id="behaviour-not-scored",
        title="actions come from another distribution than the one scored",
        means=("the policy that acts is not the policy whose log-probability is differentiated"),
        fix="action = dist.sample()  # from the distribution that scores it",
        example=(
            "action = Categorical(logits=logits / temperature).sample()\n"
            "log_prob = Categorical(logits=logits).log_prob(action)"
        ),
        note=(
            "If the program calls `log_prob`, the audit compares that distribution with the "
            "sampled one. Otherwise the audit leaves free the vector that each action in each "
            "state contributes. If the right credit then explains every path, these vectors show "
            "what was scored: they are the scores of the distribution under which their mean is "
            "zero. The report prints that distribution next to the one that acted. A program that "
            "weighs what it did by the ratio of the two distributions' probabilities learns the "
            "one that it scores, and has no fault (`importance-weights`, "
            "`per-decision-importance-weights`)."
        ),
        seen_in="[coleam00/Archon#821](https://github.com/coleam00/Archon/pull/821).",
        look=("log_prob", "log_softmax"),
    ),
    Fault(
        id="softmax-over-steps",
        title="the softmax runs over the steps",
        means=(
            "the softmax sums to 1 over the steps of a batch, not over the actions of a state, so "
            "the numbers that are scored are not the policy's probabilities"
        ),
        fix="probs = logits.softmax(-1)  # over the actions",
        example="probs = torch.softmax(model(states), 0)      # [T, A]: each action over all steps",
        note=(
            "A state alone, [A], has one dimension, so the program acts by the right "
            "probabilities. In a batch of states, [T, A], dimension 0 is the steps. "
            "`torch.nn.Softmax()` and `torch.softmax` without a dimension take 0 for tensors of "
            "one and of three dimensions. The audit names it where the distribution that acts is "
            "not the one that is scored, and the graph of the loss has such a softmax."
        ),
        seen_in=(
            "We found no thread with this cause. Among the field tests' programs it is in "
            "[Robin-ML/rl-policy-gradient](https://github.com/Robin-ML/rl-policy-gradient/blob/"
            "4227b5e20ee6d8d4d15688a6e13c7b15d9291288/reinforce/model.py#L22): `softmax` without a "
            "dimension, of [T, 1, 2]."
        ),
        look=("softmax", "Softmax", "log_softmax"),
    ),
    Fault(
        id="mask-in-acting-only",
        title="mask when acting, none when scoring",
        means="illegal actions are excluded when sampling but included when scoring",
        fix="logits = logits.masked_fill(~mask, -torch.inf)  # where they are scored, too",
        example=(
            "action = Categorical(logits=logits.masked_fill(~mask, -1e9)).sample()\n"
            "log_prob = Categorical(logits=logits).log_prob(action)"
        ),
        seen_in="[hill-a/stable-baselines#453](https://github.com/hill-a/stable-baselines/issues/453).",
        look=("log_prob", "log_softmax"),
    ),
    Fault(
        id="argmax-action",
        title="actions are not sampled",
        means=(
            "the most likely action is always taken, but the score function needs a random action"
        ),
        fix="action = Categorical(logits=logits).sample()",
        example="action = logits.argmax(-1)",
        note=(
            "The audit names it when nothing was sampled and the same state always led to the "
            "same action, if the source has `argmax` or `max`, or if that action is scored by a "
            "log-probability with a gradient."
        ),
        seen_in="[kengz/SLM-Lab#271](https://github.com/kengz/SLM-Lab/issues/271).",
        look=("argmax", "max", "topk", "mean"),
    ),
    Fault(
        id="probs-as-logits",
        title="probabilities passed as logits",
        means="a second softmax is applied, so the policy can never become deterministic",
        fix="dist = Categorical(probs=probs)  # or pass the raw outputs as logits",
        example="dist = Categorical(logits=torch.softmax(outputs, -1))",
        note=(
            "The gradient of such a policy is exact, as the residual shows. The fault limits what "
            "the policy can represent: with K actions no probability below 1/(e + K − 1) or above "
            "e/(e + K − 1)."
        ),
        seen_in=(
            "[rlworkgroup/garage#1357](https://github.com/rlworkgroup/garage/pull/1357): "
            "the first argument of the distribution is the logits, but it received probabilities."
        ),
        look=("Categorical",),
    ),
    Fault(
        id="entropy-sign",
        title="entropy with the wrong sign",
        means=("the loss penalises entropy, which drives the policy towards a deterministic one"),
        fix="loss = policy_loss - entropy_coef * entropy",
        example="loss = policy_loss + entropy_coef * entropy",
        seen_in=(
            "[google-deepmind/open_spiel#962](https://github.com/google-deepmind/open_spiel/issues/962), "
            "[rlworkgroup/garage#628](https://github.com/rlworkgroup/garage/issues/628), "
            "[DLR-RM/stable-baselines3#127](https://github.com/DLR-RM/stable-baselines3/issues/127)."
        ),
        look=("loss+entrop", "entropy", "entropies", "entropy_loss", "entropy_coef", "ent_coef"),
    ),
    Fault(
        id="no-gradient",
        title="no gradient reaches the policy",
        means="the loss does not depend on the policy's parameters, so they never change",
        fix="log_probs = torch.stack(log_probs)  # of tensors; torch.tensor(...) cuts the graph",
        example="log_probs = torch.tensor(log_probs, requires_grad=True)",
        seen_in=(
            "[kengz/SLM-Lab#133](https://github.com/kengz/SLM-Lab/issues/133) "
            "(`torch.tensor` of log-probabilities), ReLeaSE#39 (detached)."
        ),
    ),
)
