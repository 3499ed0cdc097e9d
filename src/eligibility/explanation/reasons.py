"""WHY, in words: two sentences about a gradient, with the user's numbers in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.distributions import Bernoulli, Binomial, Distribution

from eligibility.explanation.elements import Leaf
from eligibility.explanation.problem import CATEGORICALS, Of, Part, Problem, counts_of
from eligibility.explanation.sentences import say
from eligibility.explanation.wording import number, numbers_of, summary

# Summands that one sentence lists.
_MOST_SUMMANDS = 3
# Leaves of an unknown graph that get a sentence each.
_MOST_LEAVES = 3


def title(problem: Problem, names: tuple[str, ...], of: Of) -> str:
    """One line: what is explained."""
    given = ", ".join(
        f"{name}={summary(numbers_of(tensor))}" for name, tensor in problem.parameters.items()
    )
    return say(
        "title",
        of=of,
        names=", ".join(names),
        family=problem.family.__name__,
        given=given,
        value=summary(numbers_of(problem.value)),
    )


def why(part: Part) -> tuple[str, ...]:
    """The reason for the gradient of one parameter; a sentence an entry."""
    reason = _REASONS.get((part.problem.family, part.name, part.rule.coordinates))
    sentences = (*_disagreement(part), *(_general(part) if reason is None else reason(part)))
    sentences += _outcome_with_graph(part)
    if part.bonus is not None:
        sentences += (
            "The entropy bonus adds −h π (log π + H) to that, which pulls towards equal "
            "probabilities.",
        )
    outcomes = part.problem.log_prob().numel()
    if outcomes > 1:
        row = first_weighted(part)
        which = "the first" if row == 0 else f"outcome {row}, the first with a weight,"
        return (f"In numbers, for {which} of {outcomes} outcomes:", *sentences)
    return sentences


def first_weighted(part: Part) -> int:
    """The first outcome whose log-probability counts; the first one if none does."""
    weighted = part.factor.reshape(-1).nonzero().reshape(-1)
    return int(weighted[0]) if len(weighted) else 0


def loss(of: str, weights: Tensor) -> tuple[str, ...]:
    """The reason for the gradient of a weighted sum of log-probabilities."""
    return (
        f"{of} is a weighted sum of log-probabilities, and its gradient the same sum of their "
        f"eligibilities: the weights here, ∂ {of}/∂ log π(a), are {summary(numbers_of(weights))}. "
        "Its own value means nothing; only its gradient does.",
    )


def into_weights(names: Sequence[str]) -> tuple[str, ...]:
    """The reason for the gradient of a layer's weights, once that of its output is known."""
    return (
        f"From there it goes into the weights ({', '.join(names)}): each one gets δ_i x_j, the "
        "gradient at its output times its input, summed over the batch.",
    )


def paths(leaves: Sequence[Leaf]) -> tuple[str, ...]:
    """The reason for the gradient at the leaves of a graph that holds no known distribution."""
    sentences = []
    for leaf in leaves[:_MOST_LEAVES]:
        if not leaf.contributions or leaf.gradient is None:
            sentences.append(f"No gradient reaches {leaf.name}.")
        elif len(leaf.contributions) == 1:
            through = leaf.contributions[0].through
            sentences.append(f"All of the gradient of {leaf.name} arrives {through}.")
        else:
            first = leaf.contributions[:_MOST_SUMMANDS]
            parts = ", ".join(f"{summary(part.gradient)} {part.through}" for part in first)
            more = len(leaf.contributions) - len(first)
            sentences.append(
                f"{leaf.name} is used {len(leaf.contributions)} times, and its gradient is the "
                f"sum of what arrives: {parts}" + (f", and {more} more." if more else ".")
            )
    return tuple(sentences)


class _Drawn:
    """The numbers of the first outcome of the categorical family that its sentences need."""

    def __init__(self, part: Part) -> None:
        parameter = part.problem.parameters[part.name]
        width = parameter.shape[-1]
        row = first_weighted(part)
        counts = counts_of(part.problem, width).reshape(-1, width)[row]
        self.parameter = parameter.reshape(-1, width)[row].tolist()
        self.counts = [int(count) for count in counts.tolist()]
        self.trials = sum(self.counts)
        self.category = max(range(width), key=self.counts.__getitem__)
        self.other = next((k for k, count in enumerate(self.counts) if count == 0), None)
        probs = part.problem.distribution().probs.reshape(-1, width)[row]
        self.probs = probs.tolist()
        self.factor = float(part.factor.reshape(-1)[row])
        first = part.eligibility.reshape(-1, part.eligibility.shape[-1])[row]
        self.result = (self.factor * first).tolist()


def _disagreement(part: Part) -> tuple[str, ...]:
    """That torch's own gradient is another one, and why; nothing where it agrees with the rule."""
    if part.agrees:
        return ()
    torch, rule = summary(numbers_of(part.autograd)), summary(numbers_of(part.result))
    if part.is_clamped:
        return (say("clamped", torch=torch, rule=rule, **precision_of(part)),)
    return (f"torch gives {torch}, and the rule {rule}: torch's own log_prob is less accurate.",)


def _outcome_with_graph(part: Part) -> tuple[str, ...]:
    """That the outcome was computed from the parameter, and what arrives through it."""
    if part.through_outcome is None:
        return ()
    shown = [
        summary(numbers_of(tensor))
        for tensor in (part.through_outcome, part.result, part.autograd + part.through_outcome)
    ]
    return (
        f"The outcome was computed from {part.called} and kept its graph, as rsample does, so a "
        f"second gradient arrives through the outcome: {shown[0]}. With the rule's {shown[1]} that "
        f"makes {shown[2]}. REINFORCE takes the outcome as a constant: draw it with sample(), or "
        "detach it.",
    )


def precision_of(part: Part) -> dict[str, str]:
    """The bounds of torch's clamp: ε and the dtype that it belongs to."""
    dtype = part.autograd.dtype
    return {"epsilon": number(torch.finfo(dtype).eps), "dtype": str(dtype).removeprefix("torch.")}


def _weights(part: Part) -> tuple[str, ...]:
    drawn = _Drawn(part)
    a = drawn.category
    up = drawn.factor * drawn.counts[a] / drawn.parameter[a] if drawn.parameter[a] else float("inf")
    slots = {
        "a": a,
        "down": number(-drawn.factor * drawn.trials / sum(drawn.parameter)),
        "up": number(up),
        "count": drawn.counts[a],
        "trials": drawn.trials,
        "result": number(drawn.result[a]),
    }
    numerator = "weights_one" if drawn.trials == 1 else "weights_many"
    return (say("weights", **slots), say(numerator, **slots))


def _logits(part: Part) -> tuple[str, ...]:
    drawn = _Drawn(part)
    a, n = drawn.category, drawn.trials
    pushed = say(
        "logits_drawn",
        a=a,
        scale="" if drawn.factor == 1 else f"{number(drawn.factor)} · ",
        count=drawn.counts[a],
        times="" if n == 1 else f"{n} · ",
        probability=number(drawn.probs[a]),
        result=number(drawn.result[a]),
    )
    return (say("logits_many" if n > 1 else "logits", trials=n), pushed)


def _ambient(part: Part) -> tuple[str, ...]:
    drawn = _Drawn(part)
    a = drawn.category
    return (say("ambient", a=a, result=number(drawn.result[a])), say("ambient_torch"))


def _free(part: Part) -> tuple[str, ...]:
    last = len(_Drawn(part).parameter) - 1
    return (say("free", last=last), say("free_entries", last=last))


def _tangent(part: Part) -> tuple[str, ...]:
    return (say("tangent"), say("tangent_same"))


def _first_coin(part: Part) -> tuple[float, int, int, str]:
    """p, the number of ones, the number of trials, and the eligibility as a sentence writes it."""
    dist = part.problem.distribution()
    trials = dist.total_count if issubclass(part.problem.family, Binomial) else torch.ones(1)
    numbers = (dist.probs, part.problem.value, trials, part.eligibility)
    p, y, n, e = (float(tensor.reshape(-1)[0]) for tensor in numbers)
    return p, int(y), int(n), number(e)


def _coin_probs(part: Part) -> tuple[str, ...]:
    p, y, trials, e = _first_coin(part)
    slopes = (
        f"Each 1 contributes log p, whose slope is 1/p, and each 0 contributes log(1 − p), whose "
        f"slope is −1/(1 − p): here {y} of the first and {trials - y} of the second."
    )
    if p in (0.0, 1.0):
        return (slopes, f"Together that is {e}." + _times_probability(part))
    return (
        slopes,
        f"Together that is (y − n p) / (p (1 − p)) = ({y} − {number(trials * p)}) / "
        f"{number(p * (1 - p))} = {e}: what happened minus what was expected, over the variance of "
        "one coin." + _times_probability(part),
    )


def _coin_logits(part: Part) -> tuple[str, ...]:
    p, y, trials, e = _first_coin(part)
    times = f"{trials} · " if trials != 1 else ""
    return (
        f"The log-odds l make p = σ(l) = {number(p)}, whose slope p (1 − p) cancels the "
        "denominator of the rule for p.",
        f"What remains is what happened minus what was expected: {y} − {times}{number(p)} = {e}."
        + _times_probability(part),
    )


def _general(part: Part) -> tuple[str, ...]:
    e = float(part.result.reshape(-1)[0])
    where = "" if part.result.numel() == 1 else "the first entry of "
    held = "" if part.through_outcome is None else ", the outcome held fixed"
    direction = "leaves" if e == 0 else "raises" if e > 0 else "lowers"
    return (
        f"The rule is {part.rule.equation}.",
        f"Here it gives {number(e)}: raising {where}{part.called} a little {direction} "
        f"{part.of} {'as it is' if e == 0 else f'at {number(abs(e))} per unit'}{held}.",
    )


def _times_probability(part: Part) -> str:
    if part.asked == "log_prob":
        return ""
    factor = number(float(part.factor.reshape(-1)[0]))
    return f" The gradient of {part.of} is {factor} times that, its slope in log p."


_Key = tuple[type[Distribution], str, "str | None"]
_REASONS: dict[_Key, Callable[[Part], tuple[str, ...]]] = {
    **{(family, "probs", "weights"): _weights for family in CATEGORICALS},
    **{(family, "probs", "ambient"): _ambient for family in CATEGORICALS},
    **{(family, "probs", "free"): _free for family in CATEGORICALS},
    **{(family, "probs", "tangent"): _tangent for family in CATEGORICALS},
    **{(family, "logits", None): _logits for family in CATEGORICALS},
    **{(family, "probs", None): _coin_probs for family in (Bernoulli, Binomial)},
    **{(family, "logits", None): _coin_logits for family in (Bernoulli, Binomial)},
}
