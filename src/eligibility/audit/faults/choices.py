"""Choices that people make on purpose; each changes the gradient in a way that has a name."""

from __future__ import annotations

from eligibility.audit.faults.fault import Choice

CHOICES = (
    Choice(
        "gamma-t-dropped",
        "every action has the same weight, without the factor γ^t of the discounted return's "
        "gradient",
    ),
    Choice(
        "whole-episode-return",
        "every action is credited with the return of its whole episode: no bias, more variance",
    ),
    Choice(
        "mean-over-time",
        "the sum over steps is divided by the number of steps, so long batches count less",
    ),
    Choice(
        "mean-over-each-episode",
        "each episode is divided by its length, so short episodes count more",
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
        "gradient-clipping",
        "the gradient's norm is clipped; the audit reads the gradient before clipping",
    ),
    Choice(
        "rollout-cut",
        "an episode that the end of the batch cuts short is credited only with the rewards so "
        "far, or with the critic's estimate of the rest",
    ),
    Choice(
        "return-cut-at-update",
        "an episode continues after the update, and the rewards it earns then are never credited "
        "to earlier actions; the critic's value of the last state would estimate them",
    ),
    Choice(
        "gae",
        "generalised advantage estimation with λ < 1: later rewards are weighted by powers of λ, "
        "and the critic's estimates replace the rest",
    ),
    Choice(
        "bootstrapped", "later rewards are replaced by the critic's estimate: biased by its error"
    ),
    Choice(
        "limit-told-by-count",
        "an episode that ends exactly at the time limit, or at the end of the batch, is treated "
        "as truncated even if it terminated",
    ),
    Choice(
        "step-per-action",
        "each action, or part of the batch, gets a separate optimizer step: from the second on, "
        "the earlier steps have moved the policy away from the one that acted",
    ),
    Choice(
        "reward-at-end",
        "the reward of an episode's last action is replaced by a constant, or a constant is added "
        "to it: the gradient is that of a different objective",
    ),
    Choice(
        "parameter-penalty",
        "a term of the parameters alone, such as an L2 penalty, is added to the loss: its gradient "
        "is the same on every path",
    ),
    Choice(
        "reward-changed",
        "the rewards are clipped, reduced to signs, shifted or squashed before use: the gradient "
        "is that of a different objective",
    ),
    Choice(
        "shared-critic-parameters",
        "the critic's loss also moves parameters of the policy; the audit compares only the "
        "parameters that belong to the policy alone",
    ),
    Choice(
        "padded-width",
        "the sum is divided by the width of the padded batch: answers count less when the batch "
        "contains a longer one",
    ),
    Choice(
        "batch-scaled",
        "the advantages are divided by the standard deviation of the whole batch, all prompts "
        "together",
    ),
    Choice("truncated-masked", "answers truncated at the maximum length do not count"),
    Choice(
        "kl-in-reward",
        "a divergence from the reference is subtracted from the reward: with log π − log ref, "
        "this is "
        "the gradient of E[R] − β KL(π‖ref) of whole answers",
    ),
    Choice(
        "kl-per-token",
        "the gradient of each state's KL(π‖ref) is subtracted, without crediting earlier tokens "
        "with later divergence",
    ),
    Choice(
        "total-variation",
        "the absolute value of log π − log ref in the loss: the gradient of each state's "
        "Σ|π − ref| is subtracted",
    ),
    Choice(
        "squared-log-ratio",
        "the gradient of each state's mean of (log π − log ref)²/2 is subtracted: this "
        "approximates the KL only where the policies are close",
    ),
    Choice(
        "chi-squared",
        "the estimator k3 with its ratio inverted, π/ref for ref/π: the gradient of half of each "
        "state's χ² divergence from the reference is subtracted",
    ),
    Choice(
        "token-ratio",
        "each token uses only its own probability ratio and ignores the ratios of earlier tokens",
    ),
    Choice(
        "sequence-ratio", "each token uses the ratio of its whole answer: no bias, more variance"
    ),
    Choice(
        "geometric-mean-ratio",
        "each token uses the geometric mean of its answer's ratios, as in GSPO",
    ),
    Choice(
        "clipped",
        "a token whose ratio is past a bound has gradient 0 where the gradient would push the "
        "ratio further",
    ),
    Choice(
        "truncated-importance", "ratios past a bound are set to the bound: less variance, some bias"
    ),
    Choice(
        "masked-importance",
        "tokens whose ratio is beyond a bound do not count: less variance, some bias",
    ),
    Choice("soft-clipped", "the further a token's ratio is from 1, the less it counts, as in SAPO"),
    Choice(
        "micro-batch-mean",
        "each micro-batch is divided by its own normaliser: answers in a micro-batch with fewer "
        "tokens count more",
    ),
    Choice("groups-mixed", "an answer's advantage depends on the rewards of other prompts"),
    Choice(
        "discounted-by-token",
        "the reward at the end is discounted: early tokens of long answers count less",
    ),
)
