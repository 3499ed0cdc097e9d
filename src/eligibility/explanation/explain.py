"""`explain`, the one public entry: by rule for a distribution, by graph for a tensor."""

from __future__ import annotations

from torch import Tensor
from torch.distributions import Distribution

from eligibility.errors import InvalidTypeError, InvalidValueError
from eligibility.explanation.by_rule import explain_problem
from eligibility.explanation.derivation import Explanation
from eligibility.explanation.problem import Of, check_of, problem_of


def explain(
    subject: Distribution,
    *,
    value: Tensor | None = None,
    wrt: str | tuple[str, ...] | None = None,
    coordinates: str | None = None,
    of: Of = "log_prob",
) -> Explanation:
    """Where every entry of a gradient comes from.

    For a distribution, the gradient of ``log p(value)``: the characteristic eligibility, by its
    closed form, beside what torch's own operations do to reach the same numbers.

    Args:
        subject: Any distribution of `eligibility.supported_distributions`.
        value: The outcome, ``[*samples, *batch, *event]``.
        wrt: The parameter, or several; default: what the distribution was constructed with.
        coordinates: For the probs of the categorical family: "weights" (default), "ambient",
            "free" or "tangent"; see `eligibility.eligibility`.
        of: "log_prob", or "prob" for the gradient of the probability itself.

    Returns:
        The explanation; printing it shows it.

    Raises:
        UnsupportedDistributionError: No rule for the distribution or for the parameter.
        ShapeError, InvalidTypeError, InvalidValueError: ``value`` is not an outcome of it.

    Notes:
        Computed in float64, whatever the dtype of the distribution.

    Example:
        >>> import torch
        >>> policy = torch.distributions.Categorical(probs=torch.tensor([0.69, 0.1, 0.2, 0.01]))
        >>> explanation = explain(policy, value=torch.tensor(0), of="prob")
        >>> [round(entry, 4) for entry in explanation.rule.result.values]
        [0.31, -0.69, -0.69, -0.69]
        >>> for part in explanation.leaves[0].contributions:
        ...     print(part.through, [round(entry, 4) for entry in part.gradient.values])
        through the division [1.0, 0.0, 0.0, 0.0]
        through the sum [-0.69, -0.69, -0.69, -0.69]

    References:
        Williams 1992, Machine Learning 8:229-256, §4.
    """
    if not isinstance(subject, Distribution):
        raise InvalidTypeError(
            "`subject`",
            type(subject).__name__,
            "a torch.distributions object",
            "pass the distribution whose log_prob you differentiate",
        )
    if value is None:
        raise InvalidValueError(
            "`value`",
            "nothing",
            "the outcome whose probability is explained",
            "pass what was sampled, for instance value=torch.tensor(0)",
        )
    check_of(of)
    names = (wrt,) if isinstance(wrt, str) else wrt
    return explain_problem(problem_of(subject, value, names), names, coordinates, of)
