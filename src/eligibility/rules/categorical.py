"""Categorical: one draw from K categories, given as an index. One-hot, it is the multinomial.

So each rule of one-hot vectors is a rule of indices, with simpler symbols where n = 1. What the
coordinates mean is said in `eligibility.rules.multinomial`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.distributions import Categorical, OneHotCategorical

from eligibility.rules import multinomial
from eligibility.rules.outcomes import check_value
from eligibility.rules.registry import register_eligibility, rules_of
from eligibility.shapes import check_action, check_sample_shape

# How the multinomial writes an equation or a summand -> how one draw is written.
_OF_ONE_DRAW = {
    "y": "one_hot(a)",
    "−n softmax(z)": "−softmax(z)",
    "−n/Σw": "−1/Σw",
    "y − n softmax(z)": "one_hot(a) − softmax(z)",
    "y − n w/Σw": "one_hot(a) − w/Σw",
    "y_k/w_k − n/Σw": "[k = a]/w_k − 1/Σw",
    "y_k/w_k": "[k = a]/w_k",
    "y_k/w_k − y_K/w_K": "[k = a]/w_k − [K = a]/w_K",
    "y_k/w_k − mean_j(y_j/w_j)": "([k = a] − 1/K)/w_a",
}


def eligibility_logits(
    value: Int[Tensor, "*#batch"], logits: Float[Tensor, "*#batch K"]
) -> Float[Tensor, "*#batch K"]:
    r"""Eligibility of the logits, ``one_hot(a) − softmax(z)``. The entries sum to 0.

    Args:
        value: The category a in [0, K), shape ``[*samples, *batch]``.
        logits: z, shape ``[*batch, K]``; −∞ forbids a category.

    Returns:
        ∂ log π(a)/∂z, shape ``[*samples, *batch, K]``.

    Example:
        >>> eligibility_logits(torch.tensor(0), torch.zeros(4))
        tensor([ 0.7500, -0.2500, -0.2500, -0.2500])
    """
    return multinomial.eligibility_logits(_one_hot(value, logits), logits)


def _at_one_hot(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda value, parameter: function(_one_hot(value, parameter), parameter)


def _of_one_draw(summands: Callable[..., Any]) -> Callable[..., Any]:
    def renamed(value: Tensor, parameter: Tensor) -> dict[str, Tensor]:
        found = summands(_one_hot(value, parameter), parameter)
        return {_OF_ONE_DRAW[symbol]: tensor for symbol, tensor in found.items()}

    return renamed


def _one_hot(value: Tensor, like: Tensor) -> Tensor:
    return torch.nn.functional.one_hot(value.long(), like.shape[-1])


for _rule in rules_of(OneHotCategorical):
    _equation, _comma, _given = _rule.equation.partition(", ")
    register_eligibility(
        Categorical,
        _rule.parameter,
        name=_rule.name.replace("multinomial", "categorical"),
        equation=_OF_ONE_DRAW[_equation] + _comma + _given,
        reference=_rule.reference,
        symbols={"a": "value"} | {key: read for key, read in _rule.symbols.items() if key != "y"},
        terms=_rule.summands and _of_one_draw(_rule.summands),
        coordinates=_rule.coordinates,
        reads=_rule.reads,
        working=_rule.working,
    )(_at_one_hot(_rule.function))


@check_value.register
def _(dist: Categorical, value: Tensor) -> None:
    check_sample_shape(value, dist.batch_shape, dist.event_shape)
    check_action(value, dist.param_shape[-1], "value")
