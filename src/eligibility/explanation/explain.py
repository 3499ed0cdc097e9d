"""`explain`, the one public entry: by rule for a distribution, by graph for a tensor."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TypeVar

from torch import Tensor
from torch.distributions import Distribution

from eligibility.errors import InvalidTypeError, InvalidValueError
from eligibility.explanation.by_graph import explain_tensor
from eligibility.explanation.by_rule import explain_problem
from eligibility.explanation.derivation import Explanation
from eligibility.explanation.names import names_in
from eligibility.explanation.problem import Of, check_of, problem_of

Wanted = TypeVar("Wanted")


def explain(
    subject: Distribution | Tensor,
    *,
    value: Tensor | None = None,
    wrt: str | Tensor | Sequence[str] | Sequence[Tensor] | None = None,
    coordinates: str | None = None,
    of: Of = "log_prob",
    gradient: Tensor | None = None,
) -> Explanation:
    """Where every entry of a gradient comes from.

    For a distribution, the gradient of ``log p(value)``: the characteristic eligibility, by its
    closed form, and the steps by which torch's operations reach the same numbers.

    For a tensor, the gradient at each leaf of its autograd graph, edge by edge, and the rule of
    what is recognised on the way. What was computed inside `record` shows every forward value and
    the line of code that made it.

    Args:
        subject: Any distribution of `eligibility.supported_distributions`, or any tensor that
            autograd computed.
        value: For a distribution: the outcome, ``[*samples, *batch, *event]``.
        wrt: For a distribution: the name of a parameter, or several; default: what it was
            constructed with. For a tensor: a leaf or an intermediate result, or several;
            default: every leaf.
        coordinates: For the probs of the categorical family: "weights" (default), "ambient",
            "free" or "tangent"; see `eligibility.eligibility`.
        of: For a distribution: "log_prob", or "prob" for the gradient of the probability itself.
        gradient: For a tensor: ∂(what you care about)/∂(tensor), of its shape; default: ones.

    Returns:
        The explanation; printing it shows it.

    Raises:
        UnsupportedDistributionError: No rule for the distribution or for the parameter.
        ShapeError, InvalidTypeError, InvalidValueError: ``value`` is not an outcome of it, the
            tensor has no graph, or ``wrt`` is not in it.

    Notes:
        By rule it computes in float64, whatever the dtype of the distribution; by graph it runs
        the backward pass of the tensor once, in its own dtype. No ``.grad`` changes and the graph
        stays whole; hooks of the user run.

    Example:
        >>> import torch
        >>> probs = torch.tensor([0.69, 0.1, 0.2, 0.01], requires_grad=True)
        >>> policy = torch.distributions.Categorical(probs=probs)
        >>> explanation = explain(policy, value=torch.tensor(0), of="prob")
        >>> [round(entry, 4) for entry in explanation.rule.result.values]
        [0.31, -0.69, -0.69, -0.69]
        >>> prob = policy.log_prob(torch.tensor(0)).exp()
        >>> for part in explain(prob, wrt=probs).leaves[0].contributions:
        ...     print(part.through, [round(entry, 4) for entry in part.gradient.values])
        through the division [1.0, 0.0, 0.0, 0.0]
        through the sum [-0.69, -0.69, -0.69, -0.69]

    References:
        Williams 1992, Machine Learning 8:229-256, §4.
    """
    if isinstance(subject, Tensor):
        remedy = "pass the leaf itself, for instance wrt=probs"
        leaves = _listed(wrt, Tensor, "a tensor, or several", remedy)
        return explain_tensor(subject, leaves, names_in(sys._getframe(1)), gradient)
    if not isinstance(subject, Distribution):
        raise InvalidTypeError(
            "`subject`",
            type(subject).__name__,
            "a torch.distributions object, or a tensor",
            "pass the distribution whose log_prob you differentiate, or what you call backward on",
        )
    if value is None:
        raise InvalidValueError(
            "`value`",
            "nothing",
            "the outcome whose probability is explained",
            "pass what was sampled, for instance value=torch.tensor(0)",
        )
    expected = "the name of a parameter, or several"
    names = _listed(wrt, str, expected, "for instance wrt='probs'")
    return explain_problem(problem_of(subject, value, names), names, coordinates, check_of(of))


def _listed(
    wrt: object, kind: type[Wanted], expected: str, remedy: str
) -> tuple[Wanted, ...] | None:
    """What ``wrt`` names, one or several."""
    if wrt is None:
        return None
    listed = wrt if isinstance(wrt, (list, tuple)) else (wrt,)
    if listed and all(isinstance(item, kind) for item in listed):
        return tuple(listed)
    raise InvalidTypeError("`wrt`", type(wrt).__name__, expected, remedy)
