"""YOU EXPECTED: common wrong expectations, shown where the user's own numbers meet them."""

from __future__ import annotations

import torch
from torch.distributions import Bernoulli, Binomial, Categorical, Multinomial, OneHotCategorical

from eligibility.explanation.derivation import Expectation
from eligibility.explanation.problem import Part, counts_of
from eligibility.explanation.wording import number, vector
from eligibility.rules.registry import find_rule

_FAMILY = (Categorical, OneHotCategorical, Multinomial)


def expected(part: Part) -> tuple[Expectation, ...]:
    """The expectations that apply to one parameter."""
    found = (_zero_for_the_rest(part), _same_for_logits(part), _vanished(part))
    return tuple(item for item in found if item is not None)


def _zero_for_the_rest(part: Part) -> Expectation | None:
    """That entries which were not drawn have gradient 0."""
    if not issubclass(part.problem.family, _FAMILY) or part.rule.coordinates != "weights":
        return None
    width = part.problem.parameters["probs"].shape[-1]
    if not bool((counts_of(part.problem, width) == 0).any()):
        return None
    if part.result.numel() > 8 or not bool(part.eligibility.isfinite().all()):
        numbers = ""
    else:
        rule = find_rule(part.problem.distribution(), "probs", "ambient")
        ambient = rule(part.problem.as_given(), part.problem.value)
        factor = part.problem.log_prob().exp() if part.of == "prob" else torch.ones(1)
        scaled = ambient * factor.reshape(*factor.shape, *[1] * (ambient.ndim - factor.ndim))
        numbers = f", here {vector(scaled.reshape(-1).tolist())}"
    return Expectation(
        "0 for what was not drawn.",
        "That is the gradient of Σ y log w with the normaliser left out (`--coordinates "
        f"ambient`{numbers}). Both are right, each for its own convention: they differ by a "
        "constant, and after a softmax they give the same gradient of the logits, y − n π.",
        question=1,
    )


def _same_for_logits(part: Part) -> Expectation | None:
    """That probs and logits have the same gradient."""
    if not issubclass(part.problem.family, (*_FAMILY, Bernoulli, Binomial)):
        return None
    if part.name != "logits":
        return None
    return Expectation(
        "the same numbers for logits as for probs.",
        "A logit moves its probability by p times what the weight of the same name would: the "
        "chain rule multiplies the eligibility of probs by it, and the 1/p is gone. Logits need "
        "not be log-probabilities; any constant may be added to them.",
        question=4,
    )


def _vanished(part: Part) -> Expectation | None:
    """That torch's gradient is the rule's where torch clamps."""
    if part.leaf.gradient is None or part.rule.coordinates not in (None, "weights"):
        return None
    if torch.allclose(part.autograd, part.result, equal_nan=True):
        return None
    shown = vector(part.autograd.reshape(-1).tolist()) if part.autograd.numel() <= 8 else "other"
    return Expectation(
        "a gradient wherever the outcome is improbable.",
        f"torch gives {shown} here: it clamps probabilities to [ε, 1 − ε], ε = "
        f"{number(torch.finfo(torch.float64).eps)} in float64 and 1.19e-07 in float32, and a clamp "
        "has derivative 0 outside. Pass logits, which are not clamped.",
        question=6,
    )
