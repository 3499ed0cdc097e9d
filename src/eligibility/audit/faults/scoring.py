"""Faults of the score: which log-probability is differentiated."""

from __future__ import annotations

from eligibility.audit.faults.fault import Fault

FAULTS = (
    Fault(
        id="probability-not-log-probability",
        title="probability instead of its logarithm",
        means=("each action's gradient is multiplied by π(a|s), so rare actions learn least"),
        fix="loss = -(dist.log_prob(action) * returns).sum()",
    ),
    Fault(
        id="scored-other-action",
        title="another action is scored than the one taken",
        means="the log-probability belongs to an action that was not executed",
        fix="log_prob = dist.log_prob(action)  # of the action given to env.step",
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
        look=("log_prob",),
    ),
    Fault(
        id="most-likely-action-scored",
        title="the most likely action is scored",
        means="the log-probability is always that of the most likely action, whichever action was "
        "taken",
        fix="log_prob = dist.log_prob(action)  # of the action given to env.step",
        look=("log_prob", "argmax", "max"),
    ),
    Fault(
        id="behaviour-not-scored",
        title="actions come from another distribution than the one scored",
        means=("the policy that acts is not the policy whose log-probability is differentiated"),
        fix="action = dist.sample()  # from the distribution that scores it",
        look=("log_prob", "log_softmax"),
    ),
    Fault(
        id="mask-in-acting-only",
        title="mask when acting, none when scoring",
        means="illegal actions are excluded when sampling but included when scoring",
        fix="logits = logits.masked_fill(~mask, -torch.inf)  # where they are scored, too",
        look=("log_prob", "log_softmax"),
    ),
    Fault(
        id="argmax-action",
        title="actions are not sampled",
        means=(
            "the most likely action is always taken, but the score function needs a random action"
        ),
        fix="action = Categorical(logits=logits).sample()",
        look=("argmax", "max", "topk", "mean"),
    ),
    Fault(
        id="probs-as-logits",
        title="probabilities passed as logits",
        means="a second softmax is applied, so the policy can never become deterministic",
        fix="dist = Categorical(probs=probs)  # or pass the raw outputs as logits",
        look=("Categorical",),
    ),
    Fault(
        id="entropy-sign",
        title="entropy with the wrong sign",
        means=("the loss penalises entropy, which drives the policy towards a deterministic one"),
        fix="loss = policy_loss - entropy_coef * entropy",
        look=("loss+entrop", "entropy", "entropies", "entropy_loss", "entropy_coef", "ent_coef"),
    ),
    Fault(
        id="no-gradient",
        title="no gradient reaches the policy",
        means="the loss does not depend on the policy's parameters, so they never change",
        fix="log_probs = torch.stack(log_probs)  # of tensors; torch.tensor(...) cuts the graph",
    ),
)
