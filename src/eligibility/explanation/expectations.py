"""YOU EXPECTED: common wrong expectations, shown where the user's own numbers meet them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch.distributions import Bernoulli, Binomial

from eligibility.explanation import reasons
from eligibility.explanation.calls import Match
from eligibility.explanation.elements import Expectation, Leaf, Table
from eligibility.explanation.graph import Graph
from eligibility.explanation.names import Names
from eligibility.explanation.problem import CATEGORICALS, Part, counts_of, like_rows
from eligibility.explanation.sentences import say
from eligibility.explanation.wording import vector
from eligibility.rules.registry import find_rule

# Names that one sentence lists.
_MOST_NAMES = 4


def expected(part: Part) -> tuple[Expectation, ...]:
    """The expectations that apply to one parameter."""
    found = (_zero_for_the_rest(part), _same_for_logits(part), _vanished(part), _unbiased(part))
    return tuple(item for item in found if item is not None)


def of_non_leaves(names: Names, graph: Graph) -> tuple[Expectation, ...]:
    """That the user's intermediate results have a ``.grad`` after the backward pass."""
    inside = set(graph.nodes[:-1])
    named = [
        name
        for (node, _), (name, tensor) in names.places.items()
        if node in inside and not tensor.retains_grad
    ]
    if not named:
        return ()
    listed = ", ".join(f"{name}.grad" for name in named[:_MOST_NAMES])
    return (
        Expectation(
            f"a gradient in {listed}.",
            "It stays None: only leaves keep their gradient, what was computed from them does not. "
            f"Call {named[0]}.retain_grad() before backward() to keep it; STEPS shows it anyway.",
            evidence="intermediate",
        ),
    )


def of_ratio(outcomes: Table | None, of: str) -> tuple[Expectation, ...]:
    """That a loss of ratios has a value that tells something while they are all 1."""
    columns = outcomes.columns if outcomes is not None else ()
    ratios = next((column.values for column in columns if column.title == "ratio"), ())
    if not ratios or any(ratio != 1 for ratio in ratios):
        return ()
    return (
        Expectation(
            f"{of} to be more than a constant, as every ratio is 1.",
            "Its value is then the mean advantage whatever the policy does, 0 if those are "
            "centred; but the derivative of a ratio of 1 is that of log π, so the gradient is the "
            "one of REINFORCE.",
            question=11,
        ),
    )


def of_graph(matches: Sequence[Match], leaves: Sequence[Leaf], of: str) -> tuple[Expectation, ...]:
    """The expectations that what was recognised in a graph, and its gradients, call for."""
    kinds = {match.kind for match in matches}
    found = []
    if "loss" in kinds:
        found.append(
            Expectation(
                f"the value of {of} to say how well it learns.",
                "It says nothing: only its gradient is built to be the one of the expected reward. "
                "It may be 0, negative, or go up while the policy improves.",
                question=10,
                evidence="value",
            )
        )
    if "divergence" in kinds:
        found.append(
            Expectation(
                "the gradient of Σ p log(p/q) as one writes it by hand.",
                "The distributions divide their probs by the sum first, so theirs is the projected "
                "gradient: the two differ by a constant, and agree after a softmax.",
                question=2,
                evidence="gradient",
            )
        )
    if any(leaf.gradient is not None and math.isnan(leaf.gradient.minimum or 0) for leaf in leaves):
        found.append(
            Expectation(
                "a number.",
                "A NaN arose on the way. The usual place is 0 · (−∞): the entropy or a divergence "
                "of a category that cannot happen. The first step whose gradient out is NaN while "
                "its gradient in is not, read from the top, is where.",
                question=5,
            )
        )
    return tuple(found)


def _zero_for_the_rest(part: Part) -> Expectation | None:
    """That entries which were not drawn have gradient 0."""
    if not issubclass(part.problem.family, CATEGORICALS) or part.rule.coordinates != "weights":
        return None
    width = part.problem.parameters["probs"].shape[-1]
    if not bool((counts_of(part.problem, width) == 0).any()):
        return None
    if part.result.numel() > 8 or not bool(part.eligibility.isfinite().all()):
        numbers = ""
    else:
        rule = find_rule(part.problem.distribution(), "probs", "ambient")
        ambient = part.problem.eligibility(rule)
        scaled = ambient * like_rows(part.factor, ambient)
        summed = scaled.sum_to_size(part.parameter.shape)
        numbers = f", here {vector(summed.reshape(-1).tolist())}"
    answer = say("answer_zero", numbers=numbers)
    return Expectation(say("expected_zero"), answer, question=1, evidence="gradient")


def _same_for_logits(part: Part) -> Expectation | None:
    """That probs and logits have the same gradient."""
    has_logits = issubclass(part.problem.family, (*CATEGORICALS, Bernoulli, Binomial))
    if not has_logits or part.name != "logits":
        return None
    answer = say("answer_same")
    return Expectation(say("expected_same"), answer, question=4, evidence="gradient")


def _vanished(part: Part) -> Expectation | None:
    """That torch has a gradient wherever the rule has one, also where it clamps."""
    if part.leaf.gradient is None or not part.is_clamped:
        return None
    shown = vector(part.autograd.reshape(-1).tolist()) if part.autograd.numel() <= 8 else "0"
    answer = say("answer_slope", torch=shown, **reasons.precision_of(part))
    return Expectation(say("expected_slope"), answer, question=6)


def _unbiased(part: Part) -> Expectation | None:
    """That REINFORCE works with every eligibility."""
    reason = part.rule.why_biased(part.problem.distribution()) if part.rule.why_biased else None
    if reason is None:
        return None
    return Expectation(
        f"REINFORCE to learn the {part.called} with this.",
        f"The number is right, and its expectation is not 0: {reason}. REINFORCE with it is "
        "biased; use a pathwise gradient (rsample) instead.",
    )
