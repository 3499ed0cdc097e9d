"""Choices that people make on purpose: what each, which has a name, does to the gradient."""

from __future__ import annotations

CHOICES = {
    "gamma-t-dropped": (
        "every action has the same weight, without the factor γ^t of the discounted return's "
        "gradient"
    ),
    "whole-episode-return": (
        "every action is credited with the return of its whole episode: no bias, more variance"
    ),
    "mean-over-time": (
        "the sum over steps is divided by the number of steps, so long batches count less"
    ),
    "mean-over-each-episode": "each episode is divided by its length, so short episodes count more",
    "mean-over-episodes": "the sum is divided by the number of episodes",
    "centred": "the mean of the batch, which includes the action's own return, is subtracted",
    "whitened": "the returns are divided by their own standard deviation after centring",
    "scaled": "the returns are divided by their own standard deviation",
    "rescaled": (
        "the credits of each batch are multiplied by a positive number of its own, such as one "
        "over their norm"
    ),
    "leave-one-out": "the mean of the other returns is subtracted",
    "entropy-bonus": "the gradient of the entropy is added",
    "offset-logarithm": (
        "a small constant is added to the probability before its logarithm: rare actions are "
        "reinforced a little less"
    ),
    "constant-scale": "the gradient is multiplied by a constant",
    "importance-weights": (
        "the actions come from another distribution than the one learned, and every action of an "
        "episode is weighted by the ratio of the episode's probabilities: no bias, more variance"
    ),
    "per-decision-importance-weights": (
        "the actions come from another distribution than the one learned, and each reward is "
        "weighted by the ratio of the probabilities up to it: no bias, less variance than with "
        "the ratio of the whole episode"
    ),
    "step-ratio": (
        "the actions come from another distribution than the one learned, and each is weighted by "
        "its own ratio of probabilities alone, as in PPO: the states and the returns remain those "
        "of the distribution that acts"
    ),
    "baseline": (
        "a number that the action does not change, such as a function of the state or an average "
        "of earlier episodes' returns, is subtracted: no bias"
    ),
    "gradient-clipping": (
        "the gradient's norm is clipped; the audit reads the gradient before clipping"
    ),
    "running-normalisation": (
        "observations or rewards are divided by running deviations, which follow every step so "
        "far; the audit judges the program without them"
    ),
    "rollout-cut": (
        "an episode that the end of the batch cuts short is credited only with the rewards so "
        "far, or with the critic's estimate of the rest"
    ),
    "return-cut-at-update": (
        "an episode continues after the update, and the rewards it earns then are never credited "
        "to earlier actions; the critic's value of the last state would estimate them"
    ),
    "return-cut-at-reward": (
        "the return starts again at every reward that is not 0, which suits games such as Pong, "
        "where a reward ends a rally: earlier actions get no credit for later rewards"
    ),
    "gae": (
        "generalised advantage estimation with λ < 1: later rewards are weighted by powers of λ, "
        "and the critic's estimates replace the rest"
    ),
    "bootstrapped": "later rewards are replaced by the critic's estimate: biased by its error",
    "limit-told-by-count": (
        "an episode that ends exactly at the time limit, or at the end of the batch, is treated "
        "as truncated even if it terminated"
    ),
    "step-per-action": (
        "each action, or part of the batch, gets a separate optimizer step: from the second on, "
        "the earlier steps have moved the policy away from the one that acted"
    ),
    "reward-at-end": (
        "the reward of an episode's last action is replaced by a constant, or a constant is added "
        "to it: the gradient is that of a different objective"
    ),
    "parameter-penalty": (
        "a term of the parameters alone, such as an L2 penalty, is added to the loss: its "
        "gradient is the same on every path"
    ),
    "reward-changed": (
        "the rewards are clipped, reduced to signs, shifted or squashed before use, or a number "
        "that depends on the next state is added to them or takes their place: the gradient is "
        "that of a different objective"
    ),
    "shared-critic-parameters": (
        "the critic's loss also moves parameters of the policy; the audit compares only the "
        "parameters that belong to the policy alone"
    ),
    "padded-width": (
        "the sum is divided by the width of the padded batch: answers count less when the batch "
        "contains a longer one"
    ),
    "batch-scaled": (
        "the advantages are divided by the standard deviation of the whole batch, all prompts "
        "together"
    ),
    "selected-answers": (
        "only the best answers are trained on, as in RAFT and ReST: the gradient is that of a "
        "different objective"
    ),
    "truncated-masked": "answers truncated at the maximum length do not count",
    "kl-in-reward": (
        "a divergence from the reference is subtracted from the reward: with log π − log ref, "
        "this is the gradient of E[R] − β KL(π‖ref) of whole answers"
    ),
    "kl-per-token": (
        "the gradient of each state's KL(π‖ref) is subtracted, without crediting earlier tokens "
        "with later divergence"
    ),
    "total-variation": (
        "the absolute value of log π − log ref in the loss: the gradient of each state's Σ|π − "
        "ref| is subtracted"
    ),
    "squared-log-ratio": (
        "the gradient of each state's mean of (log π − log ref)²/2 is subtracted: this "
        "approximates the KL only where the policies are close"
    ),
    "chi-squared": (
        "the estimator k3 with its ratio inverted, π/ref for ref/π: the gradient of half of each "
        "state's χ² divergence from the reference is subtracted"
    ),
    "token-ratio": (
        "each token uses only its own probability ratio and ignores the ratios of earlier tokens"
    ),
    "sequence-ratio": "each token uses the ratio of its whole answer: no bias, more variance",
    "geometric-mean-ratio": "each token uses the geometric mean of its answer's ratios, as in GSPO",
    "clipped": (
        "a token whose ratio is past a bound has gradient 0 where the gradient would push the "
        "ratio further"
    ),
    "truncated-importance": "ratios past a bound are set to the bound: less variance, some bias",
    "masked-importance": (
        "tokens whose ratio is beyond a bound do not count: less variance, some bias"
    ),
    "soft-clipped": "the further a token's ratio is from 1, the less it counts, as in SAPO",
    "micro-batch-mean": (
        "each micro-batch is divided by its own normaliser: answers in a micro-batch with fewer "
        "tokens count more"
    ),
    "groups-mixed": "an answer's advantage depends on the rewards of other prompts",
    "discounted-by-token": (
        "the reward at the end is discounted: early tokens of long answers count less"
    ),
}
