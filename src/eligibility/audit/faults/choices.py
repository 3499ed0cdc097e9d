"""Choices that people make on purpose; each changes the gradient in a way that has a name."""

from __future__ import annotations

from eligibility.audit.faults.record import Choice

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
        "mean-over-each-episode",
        "each episode is divided by its own length: short ones count more",
    ),
    Choice(
        "mean-over-episodes",
        "the sum is divided by the number of episodes",
    ),
    Choice(
        "centred",
        "the mean of the batch, which includes the action's own return, is subtracted",
    ),
    Choice(
        "whitened",
        "the returns are divided by their own standard deviation after centring",
    ),
    Choice(
        "scaled",
        "the returns are divided by their own standard deviation",
    ),
    Choice(
        "leave-one-out",
        "the mean of the other returns is subtracted",
    ),
    Choice(
        "entropy-bonus",
        "the gradient of the entropy is added",
    ),
    Choice(
        "constant-scale",
        "the gradient is multiplied by a constant",
    ),
    Choice(
        "baseline",
        "a function of the state is subtracted: no bias",
    ),
    Choice(
        "gradient-clipping",
        "the gradient's norm is limited; the audit looks at it before that",
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
        "bootstrapped",
        "later rewards are replaced by the critic's estimate: biased by its error",
    ),
    Choice(
        "shared-critic-parameters",
        "the critic's loss moves parameters of the policy too; the audit looks at those "
        "that are the policy's alone",
    ),
)
