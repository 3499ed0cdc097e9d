"""Choices that people make on purpose; each changes the gradient in a way that has a name."""

from __future__ import annotations

from eligibility.audit.faults.fault import Choice

CHOICES = (
    Choice(
        "gamma-t-dropped",
        "each action is weighed equally, without the factor γ^t of the discounted "
        "return's gradient",
    ),
    Choice(
        "whole-episode-return",
        "every action gets the return of its whole episode: no bias, more variance",
    ),
    Choice(
        "mean-over-time",
        "the sum over steps is divided by their number, so long batches count less",
    ),
    Choice(
        "mean-over-each-episode", "each episode is divided by its own length: short ones count more"
    ),
    Choice("mean-over-episodes", "the sum is divided by the number of episodes"),
    Choice(
        "centred", "the mean of the batch, which includes the action's own return, is subtracted"
    ),
    Choice("whitened", "the returns are divided by their own standard deviation after centring"),
    Choice("scaled", "the returns are divided by their own standard deviation"),
    Choice("leave-one-out", "the mean of the other returns is subtracted"),
    Choice("entropy-bonus", "the gradient of the entropy is added"),
    Choice("constant-scale", "the gradient is multiplied by a constant"),
    Choice("baseline", "a function of the state is subtracted: no bias"),
    Choice(
        "gradient-clipping", "the gradient's norm is limited; the audit looks at it before that"
    ),
    Choice(
        "rollout-cut",
        "an episode that the batch cuts short counts only the rewards seen, or the "
        "critic's estimate of the rest",
    ),
    Choice(
        "return-cut-at-update",
        "an episode goes on after the update, and what it earns there is never credited "
        "to the actions before it; the critic's value of the last state would stand for "
        "it",
    ),
    Choice(
        "gae",
        "generalised advantage estimation with λ < 1: later rewards count with powers of "
        "λ, and the critic's estimates make up for the rest",
    ),
    Choice(
        "bootstrapped", "later rewards are replaced by the critic's estimate: biased by its error"
    ),
    Choice(
        "limit-told-by-count",
        "an episode that ends at the very step of the time limit, or of the batch, is taken for "
        "one that was cut off, whether it terminated or not",
    ),
    Choice(
        "step-per-action",
        "each action, or part of the batch, has an optimizer step of its own: from the second on, "
        "the policy differs from the one that acted by what the steps before it have moved",
    ),
    Choice(
        "reward-at-end",
        "what the last action of an episode earns is replaced by a constant, or one is added to "
        "it: the gradient is that of another objective",
    ),
    Choice(
        "parameter-penalty",
        "a term of the parameters alone, such as an L2 penalty, is added to the loss: its gradient "
        "is the same on every path",
    ),
    Choice(
        "reward-changed",
        "the rewards are cut off, reduced to signs, shifted or squashed before they are used: the "
        "gradient is that of another objective",
    ),
    Choice(
        "shared-critic-parameters",
        "the critic's loss moves parameters of the policy too; the audit looks at those "
        "that are the policy's alone",
    ),
    Choice(
        "padded-width",
        "the sum is divided by the width of the padded batch: answers in a batch with a longer one "
        "count less",
    ),
    Choice(
        "batch-scaled",
        "the advantages are divided by the standard deviation of the whole batch, all prompts "
        "together",
    ),
    Choice("truncated-masked", "answers that were cut at the longest length do not count"),
    Choice(
        "kl-in-reward",
        "a divergence from the reference is subtracted from the reward: with log π − log ref, this is "
        "the gradient of E[R] − β KL(π‖ref) of whole answers",
    ),
    Choice(
        "kl-per-token",
        "the gradient of each state's KL(π‖ref) is subtracted, without credit of later divergence to "
        "earlier tokens",
    ),
    Choice(
        "total-variation",
        "the absolute value of log π − log ref in the loss: the gradient of each state's "
        "Σ|π − ref| is subtracted",
    ),
    Choice(
        "squared-log-ratio",
        "the gradient of each state's mean of (log π − log ref)²/2 is subtracted: the KL only where "
        "the policies are near",
    ),
    Choice(
        "chi-squared",
        "the estimator k3 with its ratio upside down, π/ref for ref/π: the gradient of half of each "
        "state's χ² divergence from the reference is subtracted",
    ),
    Choice(
        "token-ratio",
        "each token has the ratio of its own probabilities: those of the tokens before it are "
        "ignored",
    ),
    Choice(
        "sequence-ratio", "each token has the ratio of its whole answer: no bias, more variance"
    ),
    Choice(
        "geometric-mean-ratio",
        "each token has the geometric mean of its answer's ratios, as in GSPO",
    ),
    Choice(
        "clipped",
        "the gradient of tokens whose ratio is beyond a bound, in the direction that takes it "
        "further, is 0",
    ),
    Choice(
        "truncated-importance", "ratios beyond a bound are replaced by it: less variance, some bias"
    ),
    Choice(
        "masked-importance",
        "tokens whose ratio is beyond a bound do not count: less variance, some bias",
    ),
    Choice("soft-clipped", "the further a token's ratio is from 1, the less it counts, as in SAPO"),
    Choice(
        "micro-batch-mean",
        "the normaliser is the micro-batch's: answers in one with fewer tokens count more",
    ),
    Choice("groups-mixed", "an answer's advantage depends on the rewards of other prompts"),
    Choice(
        "discounted-by-token",
        "the reward at the end is discounted: early tokens of long answers count less",
    ),
)
