"""Faults of losses over the tokens of a language model."""

from __future__ import annotations

from eligibility.audit.faults.fault import Fault

FAULTS = (
    Fault(
        id="padding-counted",
        title="padding is trained on",
        means=(
            "positions after the end of an answer contribute to the gradient, so the model learns "
            "from tokens that it never sampled"
        ),
        fix="loss = -(log_probs * advantages * mask).sum() / mask.sum()",
        example="loss = -(log_probs * advantages[:, None]).mean()      # no mask",
        note=(
            "The probe's logits at padded positions depend on parameters, as a real model's do. "
            "The gradient with respect to these parameters must be 0 in every batch. The "
            "invariance `padding` is stronger: changing the tokens and logits there must change "
            "nothing."
        ),
        seen_in=(
            "[THUDM/slime#1372](https://github.com/THUDM/slime/issues/1372): the KL of masked "
            "tokens entered the returns."
        ),
    ),
    Fault(
        id="kl-without-gradient",
        title="the KL term has no gradient",
        means=(
            "the loss contains a divergence from the reference, but the expected gradient does "
            "not depend on the reference, so nothing keeps the policy close to it"
        ),
        fix=(
            "kl = 0.5 * (log_probs - ref_log_probs) ** 2  # k2 in the loss, or k1 in the reward: "
            "rewards - beta * (log_probs - ref_log_probs).detach().sum(1)"
        ),
        example="loss = pg_loss + beta * (log_probs - ref_log_probs).mean()      # k1",
        note=(
            "The estimator k1 = log π − log ref has the right value and the gradient ∇ log π, "
            "whose expectation is 0. Under `no_grad` or after `detach` no estimator has a gradient. The "
            "audit moves the reference: the loss changes, and the gradient does not."
        ),
        seen_in=(
            "[OpenRLHF/OpenRLHF#1309](https://github.com/OpenRLHF/OpenRLHF/issues/1309) (k1 in the "
            "loss), [NovaSky-AI/SkyRL#1353](https://github.com/NovaSky-AI/SkyRL/issues/1353) "
            "(under `no_grad`)."
        ),
    ),
    Fault(
        id="kl-forward",
        title="the gradient of the forward KL",
        means=(
            "the estimator k3 in the loss has the value of KL(π‖ref) but the gradient of each "
            "state's KL(ref‖π)"
        ),
        fix=(
            "kl = ratio * kl  # with ratio = (log_probs - log_probs.detach()).exp(); or k2: "
            "0.5 * (log_probs - ref_log_probs) ** 2"
        ),
        example=(
            "delta = ref_log_probs - log_probs\n"
            "loss = pg_loss + beta * (delta.exp() - delta - 1).mean()      # k3"
        ),
        note=(
            "E[∇k3] = −Σ_v ref(v) ∇ log π(v) at each state, which is ∇KL(ref‖π). Multiplied by the "
            "ratio of policy and behaviour, which is 1 and has a gradient, it has the gradient of "
            "each state's KL(π‖ref)."
        ),
        seen_in="[OpenRLHF/OpenRLHF#1309](https://github.com/OpenRLHF/OpenRLHF/issues/1309).",
    ),
    Fault(
        id="kl-sign",
        title="the KL has the wrong sign",
        means="the update moves the policy away from the reference",
        fix="rewards - beta * kl, or loss + beta * kl",
        example="token_rewards = scores + beta * kl",
        seen_in="[volcengine/verl#179](https://github.com/volcengine/verl/issues/179).",
    ),
    Fault(
        id="off-policy-uncorrected",
        title="answers of another policy, without a ratio",
        means=(
            "the answers were sampled from a policy other than the one that is scored, and no "
            "ratio corrects for it"
        ),
        fix="loss = -((log_probs - old_log_probs).exp() * advantages * mask).sum()",
        example="loss = -(log_probs * advantages * mask).sum()      # for answers of an older "
        "policy",
        note=(
            "The audit names it when the probe's behaviour policy is an older policy, or the "
            "inference engine's, and the weights do not depend on the ratio."
        ),
    ),
    Fault(
        id="clip-on-the-wrong-side",
        title="the clip is on the wrong side",
        means=(
            "a ratio that is past a bound keeps its gradient where the gradient pushes the "
            "ratio further, and loses it where the gradient would bring the ratio back"
        ),
        fix="loss = -torch.min(ratio * advantages, ratio.clamp(1 - eps, 1 + eps) * advantages)",
        example=(
            "loss = -torch.max(ratio * advantages, ratio.clamp(1 - eps, 1 + eps) * advantages)"
        ),
        note=(
            "PPO maximises the smaller of two objectives, or minimises the larger of their "
            "negatives. The difference shows only where a ratio is past a bound: in a second "
            "update on the same answers, or with answers of an older policy."
        ),
    ),
    Fault(
        id="reward-of-another-answer",
        title="answers get the rewards of other answers",
        means=(
            "an answer is reinforced by the reward of another answer, or compared with answers to "
            "other prompts where those to its own are meant"
        ),
        fix="rewards = rewards.view(prompts, group_size)  # answers to a prompt lie side by side",
        example="rewards = rewards.view(group_size, prompts).T      # as if they were interleaved",
        note=(
            "Two conventions for a batch are mixed: answers to one prompt side by side, and the "
            "prompts in turn. Each weight is then a function of the wrong rewards, in every batch."
        ),
        seen_in=(
            "Two forks of nanoGRPO, which append the reward of answer i to the list of prompt "
            "i % batch_size ([the sixth field test](published_language.md#a-sixth-field-test))."
        ),
    ),
    Fault(
        id="first-token-dropped",
        title="the first token of an answer is left out",
        means="the first token of every answer is never reinforced",
        fix="shift logits and tokens by one place, not by two",
        example="loss = -(log_probs[:, 1:] * advantages[:, None] * mask[:, 1:]).sum()",
        note="Its weight is 0 in every batch, while the other tokens have nonzero weights.",
    ),
    Fault(
        id="prompt-scored",
        title="tokens of the prompt are trained on",
        means="the loss changes the probabilities of prompt tokens, which the policy did not "
        "sample",
        fix="mask = completion_mask  # 0 on the prompt and on the padding",
        example="loss = -(log_probs * advantages[:, None]).sum()  # of prompt and answer together",
        note="Part of the gradient falls on the logits that predict the prompt's tokens.",
    ),
)

# The fix of faults that other programs have as well, in terms of tokens.
FIXES = {
    "scored-other-action": "log_probs = logits.log_softmax(-1).gather(-1, tokens.unsqueeze(-1))",
    "most-likely-action-scored": "log_probs = logits.log_softmax(-1).gather(-1, tokens[..., None])",
    "behaviour-not-scored": "(logits / temperature).log_softmax(-1), of draws with top_p=1, top_k=0",
    "prompt-scored": "mask = answer_mask  # 0 on the prompt and on the padding",
    "last-step-dropped": "use all tokens, because ending the answer is a decision too",
    "broadcast": "loss = -(log_probs * advantages.unsqueeze(1) * mask).sum()",
    "rewards-so-far": "token_rewards.flip(-1).cumsum(-1).flip(-1)",
    "probability-not-log-probability": "loss = -(log_probs * advantages * mask).sum()",
    "returns-unused": "loss = -(log_probs * advantages * mask).sum()",
    "wrong-sign": "loss = -(log_probs * advantages * mask).sum()  # optimizers minimise",
    "advantage-not-detached": "advantages = (rewards - beta * kl.detach()) - baseline",
    "old-log-prob-stale": "ratio = (log_probs - old_log_probs).exp()  # not those of the reference",
    "ratio-always-one": "ratio = (log_probs - old_log_probs).exp()  # those of the policy that "
    "sampled the answers",
    "entropy-sign": "loss = pg_loss - entropy_coef * entropy",
}

# What to write instead of a convention, where one does not want what it does.
INSTEAD = {
    "baseline": "a choice without a bias",
    "gae": "λ = 1: a final reward counts equally for every token",
    "discounted-by-token": "γ = 1: a final reward counts equally for every token",
    "mean-over-each-episode": "(terms * mask).sum(1).mean(), or divided by a constant length",
    "mean-over-time": "(terms * mask).sum() / (rows * max_length): the same divisor in every batch",
    "micro-batch-mean": "divide each micro-batch's sum by the number of rows of the whole batch",
    "padded-width": "(terms * mask).sum() / (rows * max_length): a constant, not the batch's width",
    "whitened": "rewards minus the group's mean, without dividing by its standard deviation",
    "batch-scaled": "advantages without the division, or divided by a running standard deviation",
    "scaled": "rewards without the division, or divided by a running standard deviation",
    "centred": "a choice without a bias: the factor (G-1)/G only rescales the learning rate",
    "leave-one-out": "a choice without a bias",
    "constant-scale": "a choice without a bias: the factor only rescales the learning rate",
    "groups-mixed": "subtract the mean of the answers to the same prompt",
    "selected-answers": "train on all answers, each with its reward minus the group's mean",
    "truncated-masked": "keep truncated answers, with the reward that they deserve",
    "kl-in-reward": "a choice: without it, the objective is E[R] alone",
    "kl-per-token": (
        "for the KL of whole answers: rewards - beta * (log_probs - ref_log_probs).detach().sum(1)"
    ),
    "total-variation": "kl = 0.5 * (log_probs - ref_log_probs) ** 2",
    "squared-log-ratio": "the ratio times k3, or k2 without the ratio: each state's KL",
    "chi-squared": "kl = 0.5 * (log_probs - ref_log_probs) ** 2: its gradient is that of the KL",
    "entropy-bonus": "a choice: without it, the objective is E[R] alone",
    "token-ratio": "ratio = ((log_probs - old_log_probs) * mask).sum(1, keepdim=True).exp()",
    "sequence-ratio": "a choice without a bias; the token's ratio has less variance and a bias",
    "geometric-mean-ratio": (
        "ratio = ((log_probs - old_log_probs) * mask).sum(1, keepdim=True).exp()"
    ),
    "clipped": "one step per batch of answers, so that no ratio reaches the bound",
    "truncated-importance": "a larger bound: the bias falls, and the variance rises",
    "masked-importance": "truncate instead: ratio.clamp(max=bound), which keeps every token",
    "soft-clipped": "ratio * advantages, without the gate, and with few steps per batch",
}
