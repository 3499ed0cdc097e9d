"""One outcome of one distribution in float64: the common ground of rule, autograd and checks."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

import torch
from torch import Tensor
from torch.distributions import Distribution

from eligibility.errors import InvalidValueError
from eligibility.explanation.derivation import Leaf
from eligibility.rules.registry import check_value, constructed_parameters
from eligibility.rules.rule import Rule

Of = Literal["log_prob", "prob"]


@dataclass(frozen=True)
class Problem:
    """``log p(value)`` of a stock distribution as a function of its parameters.

    Attributes:
        family: The stock class of torch; its constructor takes the parameters by name.
        parameters: What it is constructed with, as given: probs are weights, not normalised.
            float64, one row for each outcome, so that every outcome has its own gradient.
        constants: Further arguments of its constructor: ``total_count``.
        value: The outcomes, ``[*samples, *batch, *event]``.
    """

    family: type[Any]
    parameters: Mapping[str, Tensor]
    constants: Mapping[str, Any]
    value: Tensor

    def distribution(self, **replaced: Tensor) -> Any:
        """The stock distribution, some of its parameters replaced."""
        arguments = {**self.parameters, **self.constants, **replaced}
        return self.family(**arguments, validate_args=False)

    def log_prob(self, **replaced: Tensor) -> Tensor:
        """``log p(value)`` as torch computes it; one number an outcome."""
        result = self.distribution(**replaced).log_prob(self.value)
        assert isinstance(result, Tensor)
        return result

    def as_given(self) -> Any:
        """The distribution with its parameters as they were given, for a rule to read.

        torch divides probs by their sum on construction; here they are the weights again.
        """
        given = dict(self.parameters)
        # Class attributes, because some families expose a parameter as a property.
        holder: Any = type(self.family.__name__, (self.family,), given)
        dist = holder.__new__(holder)
        vars(dist).update({**vars(self.distribution()), **given})
        return dist


def check_of(of: str) -> Of:
    """``of`` itself, if it is something that can be differentiated here."""
    if of not in get_args(Of):
        raise InvalidValueError("`of`", repr(of), "'log_prob' or 'prob'", "choose one of them")
    return cast(Of, of)


@dataclass(frozen=True)
class Part:
    """What was found about one parameter, by rule and by autograd.

    Attributes:
        problem: The outcomes it is about.
        name: The parameter.
        called: What the reader calls the tensor that holds it.
        rule: Its closed form in the convention that was asked for.
        of: What is differentiated: "log_prob", "prob", or a name of the user's.
        asked: The same if it was asked for by rule; None for a tensor of the user's.
        factor: ∂(what is differentiated)/∂ log p of each outcome: 1, p, or a weight in a loss.
        eligibility: ∂ log p/∂parameter by the rule, one row an outcome.
        parameter: The parameter as the reader has it; rows may share it.
        result: The factors times the eligibilities, summed to the shape of ``parameter``.
        autograd: The same by autograd, in the same convention.
        leaf: Where torch's own computation ends, with the summands.
    """

    problem: Problem
    name: str
    called: str
    rule: Rule
    of: str
    asked: Of | None
    factor: Tensor
    eligibility: Tensor
    parameter: Tensor
    result: Tensor
    autograd: Tensor
    leaf: Leaf


def problem_of(dist: Distribution, value: Tensor, wrt: tuple[str, ...] | None = None) -> Problem:
    """The problem that a distribution object and an outcome pose, as a function of ``wrt``.

    Raises:
        UnsupportedDistributionError: There is no rule for the distribution.
        ShapeError, InvalidTypeError, InvalidValueError: ``value`` is not an outcome of ``dist``.
    """
    check_value(dist, value)
    family = next(c for c in type(dist).__mro__ if c.__module__.startswith("torch.distributions"))
    given = constructed_parameters(dist)
    for name, other in (("probs", "logits"), ("logits", "probs")):
        if name in (wrt or ()):
            given = tuple(name if item == other else item for item in given)
    arguments = inspect.signature(family).parameters
    others = [n for n in arguments if n not in (*given, "probs", "logits", "validate_args")]
    constants = {name: getattr(dist, name) for name in others}
    return make_problem(family, {name: getattr(dist, name) for name in given}, constants, value)


def make_problem(
    family: type[Any],
    parameters: Mapping[str, Tensor],
    constants: Mapping[str, Any],
    value: Tensor,
) -> Problem:
    """The same in float64, with one row of parameters for each outcome."""
    wide = {name: tensor.detach().double() for name, tensor in parameters.items()}
    dist = family(**wide, **constants, validate_args=False)
    value = value.double() if value.is_floating_point() else value
    outcomes = value if value.ndim > len(dist.event_shape) else value.expand(
        dist.batch_shape + dist.event_shape
    )  # fmt: skip
    batch = outcomes.shape[: outcomes.ndim - len(dist.event_shape)]
    rows = {}
    for name, tensor in wide.items():
        event = _event_dim(family, name)
        rows[name] = tensor.expand(batch + tensor.shape[tensor.ndim - event :]).contiguous()
    return Problem(family, rows, constants, outcomes)


def like_rows(factor: Tensor, rows: Tensor) -> Tensor:
    """``factor``, one number a row, shaped so that it multiplies ``rows``."""
    return factor.reshape(factor.shape + (1,) * (rows.ndim - factor.ndim))


def _event_dim(family: type[Any], parameter: str) -> int:
    constraint: Any = family.arg_constraints[parameter]
    return int(constraint.event_dim)


def log_prob_in(problem: Problem, name: str, coordinates: str | None, leaf: Tensor) -> Tensor:
    """``log p(value)`` as a function of the parameter ``name``, in the named convention.

    Its autograd gradient is the second route to the rule: nothing here knows the closed form.
    """
    if coordinates == "ambient":
        return _log_of_drawn(problem, leaf)
    if coordinates == "free":
        total = problem.parameters[name].sum(-1, keepdim=True)
        implied = total - leaf.sum(-1, keepdim=True)
        return _log_of_drawn(problem, torch.cat([leaf, implied], -1))
    if coordinates == "tangent":
        held = problem.parameters[name].mean(-1, keepdim=True)
        return problem.log_prob(**{name: leaf - leaf.mean(-1, keepdim=True) + held})
    return problem.log_prob(**{name: leaf})


def start_in(problem: Problem, name: str, coordinates: str | None) -> Tensor:
    """Where the parameter ``name`` is in those coordinates: a copy, ready to be a leaf."""
    start = problem.parameters[name].detach().clone()
    return start[..., :-1] if coordinates == "free" else start


def _log_of_drawn(problem: Problem, weights: Tensor) -> Tensor:
    """Σ y_k log w_k over what was drawn."""
    counts = counts_of(problem, weights.shape[-1])
    drawn = torch.where(counts > 0, weights, torch.ones_like(weights))
    return (counts * drawn.log()).sum(-1)


def counts_of(problem: Problem, categories: int) -> Tensor:
    """The outcomes of the categorical family as counts ``[*batch, K]``."""
    if problem.family is torch.distributions.Categorical:
        return torch.nn.functional.one_hot(problem.value.long(), categories).double()
    return problem.value.double()
