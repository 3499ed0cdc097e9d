"""One outcome of one distribution in float64: the common ground of rule, autograd and checks."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Literal, cast, get_args

import torch
from torch import Tensor
from torch.distributions import Categorical, Distribution, Multinomial, OneHotCategorical

from eligibility.errors import InvalidValueError, UnsupportedDistributionError
from eligibility.explanation.elements import Leaf, RuleStatement, Term
from eligibility.explanation.wording import numbers_of
from eligibility.rules.constructed import ALTERNATIVES
from eligibility.rules.outcomes import check_value
from eligibility.rules.registry import (
    constructed_parameters,
    find_rule,
    nearest_entry,
    rules_of,
)
from eligibility.rules.rule import Rule, read_parameter

Of = Literal["log_prob", "prob"]
CATEGORICALS = (Categorical, OneHotCategorical, Multinomial)


@dataclass(frozen=True)
class Problem:
    """``log p(value)`` of a distribution as a function of its parameters."""

    # The stock class of torch, or the user's own where there is none; its constructor takes the
    # parameters by name.
    family: type[Any]
    # What it is constructed with, as given: probs are weights, not normalised. float64, one row for
    # each outcome, so that every outcome has its own gradient.
    parameters: Mapping[str, Tensor]
    constants: Mapping[str, Any]  # further arguments of its constructor: ``total_count``
    value: Tensor  # the outcomes, ``[*samples, *batch, *event]``

    def distribution(self, **replaced: Tensor) -> Any:
        """The distribution, some of its parameters replaced."""
        return _construct(self.family, {**self.parameters, **self.constants, **replaced})

    def log_prob(self, **replaced: Tensor) -> Tensor:
        """``log p(value)`` as the family computes it; one number an outcome."""
        result: Tensor = self.distribution(**replaced).log_prob(self.value)
        return result

    def read(self, rule: Rule) -> dict[str, Any]:
        """What a rule reads, as it was given: torch divides probs by their sum on construction."""
        given = {name: self.parameters[name] for name in rule.reads if name in self.parameters}
        return {**rule.read(self.distribution()), **given}

    def eligibility(self, rule: Rule) -> Tensor:
        """The rule's answer for the parameters as they were given."""
        return rule.at(self.read(rule), self.value)


def check_of(of: str) -> Of:
    """``of`` itself, if it is something that can be differentiated here."""
    if of not in get_args(Of):
        raise InvalidValueError("`of`", repr(of), "'log_prob' or 'prob'", "choose one of them")
    return cast(Of, of)


@dataclass(frozen=True)
class Part:
    """What was found about one parameter, by rule and by autograd."""

    problem: Problem  # the outcomes it is about
    name: str
    called: str  # what the reader calls the tensor that holds it
    rule: Rule  # its closed form in the convention that was asked for
    of: str  # what is differentiated: "log_prob", "prob", or a name of the user's
    asked: Of | None  # the same if it was asked for by rule; None for a tensor of the user's
    factor: Tensor  # ∂(what is differentiated)/∂ log p of each outcome: 1, p, or a weight in a loss
    eligibility: Tensor  # ∂ log p/∂parameter by the rule, one row an outcome
    parameter: Tensor  # the parameter as the reader has it; rows may share it
    result: Tensor  # the factors times the eligibilities, summed to the shape of ``parameter``
    autograd: Tensor  # the same by autograd, in the same convention
    leaf: Leaf  # where torch's own computation ends, with the summands
    # ∂(what is differentiated)/∂ entropy of each row, where the entropy is used too; ``result``
    # then holds its gradient as well.
    bonus: Tensor | None = None
    agrees: bool = True  # whether rule and autograd are the same, up to rounding
    place: Any = None  # where its gradient arrives in the user's graph; None by rule
    # What arrives through outcomes that were computed from the parameter, as `rsample` does;
    # ``autograd`` is without it. None where the outcomes are constants.
    through_outcome: Tensor | None = None
    # The gradient by summand of a loss that has several: policy, entropy, KL.
    split: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def has_categories(self) -> bool:
        """Whether the parameter has an entry for each category."""
        return self.eligibility.ndim > self.problem.log_prob().ndim

    @property
    def conventions(self) -> tuple[str | None, ...]:
        """The conventions in which the parameter has a closed form."""
        rules = [rule for rule in rules_of(self.problem.family) if rule.parameter == self.name]
        return tuple(dict.fromkeys(rule.coordinates for rule in rules))

    @property
    def is_torchs(self) -> bool:
        """Whether the convention is the one that torch's own operations follow."""
        return self.rule.coordinates in (None, "weights")

    @property
    def is_clamped(self) -> bool:
        """Whether torch's gradient is 0 where the rule's is not: what its clamp does."""
        vanished = (self.autograd == 0) & (self.result != 0)
        return self.name == "probs" and bool(vanished.any())


def problem_of(
    dist: Distribution,
    value: Tensor,
    wrt: tuple[str, ...] | None = None,
    tensors: Mapping[str, Tensor] | None = None,
) -> Problem:
    """The problem that a distribution object and an outcome pose, as a function of ``wrt``.

    ``tensors`` are those that it was constructed with, where they are still known.
    """
    check_value(dist, value)
    given = constructed_parameters(dist)
    # The nearest class of torch says the most; where there is none, the one that has rules.
    stock = stock_family(type(dist))
    family = nearest_entry(type(dist)) if stock is Distribution else stock
    for group in ALTERNATIVES:
        asked = next((name for name in group if name in (wrt or ())), None)
        given = tuple(asked if asked and name in group else name for name in given)
    arguments = tuple(inspect.signature(family).parameters)
    excluded = {*given, *_OPTIONS}.union(*(g for g in ALTERNATIVES if set(g) & set(given)))
    needed = [name for name in arguments if name not in excluded]
    missing = [name for name in needed if not hasattr(dist, name)]
    if missing:
        raise UnsupportedDistributionError(
            f"`{missing[0]}` of {type(dist).__name__}",
            "a constructor argument that it does not keep as an attribute",
            "attributes from which the distribution can be rebuilt",
            "keep it as an attribute, or explain by graph: eligibility.explain(dist.log_prob(y))",
        )
    constants = {name: getattr(dist, name) for name in needed}
    parameters = {name: read_parameter(dist, name) for name in given} | {
        name: tensor for name, tensor in (tensors or {}).items() if name in given
    }
    return make_problem(family, parameters, constants, value)


def stock_family(cls: type[Distribution]) -> type[Distribution]:
    """The nearest class of torch."""
    return next(c for c in cls.__mro__ if c.__module__.startswith("torch.distributions"))


def _construct(family: type[Any], arguments: Mapping[str, Any]) -> Any:
    """A distribution whose arguments are known to be right, if it can be told so."""
    can_skip = "validate_args" in inspect.signature(family).parameters
    return family(**arguments, **({"validate_args": False} if can_skip else {}))


# Arguments that change nothing of what is explained.
_OPTIONS = ("validate_args", "lims")


def make_problem(
    family: type[Any], parameters: Mapping[str, Tensor], constants: Mapping[str, Any], value: Tensor
) -> Problem:
    """The same in float64, with one row of parameters for each outcome."""
    wide = {name: tensor.detach().double() for name, tensor in parameters.items()}
    fixed = {name: _widened(constant) for name, constant in constants.items()}
    dist = _construct(family, {**wide, **fixed})
    value = _widened(value)
    whole = value.ndim > len(dist.event_shape)
    outcomes = value if whole else value.expand(dist.batch_shape + dist.event_shape)
    rows = {
        name: tensor.expand(find_rule(dist, name)(dist, outcomes).shape).contiguous()
        for name, tensor in wide.items()
    }
    problem = Problem(family, rows, fixed, outcomes)
    try:
        problem.log_prob()
    except RuntimeError as error:
        raise UnsupportedDistributionError(
            f"the log_prob of {family.__name__}",
            f"an error in float64: {' '.join(str(error).split())}",
            "a number to compare the rule with",
            "use eligibility.eligibility, which does not need it",
        ) from error
    return problem


def _widened(constant: Any) -> Any:
    """A floating-point tensor in float64; anything else as it is."""
    is_tensor = isinstance(constant, Tensor) and constant.is_floating_point()
    return constant.detach().double() if is_tensor else constant


def like_rows(factor: Tensor, rows: Tensor) -> Tensor:
    """``factor``, one number a row, shaped so that it multiplies ``rows``."""
    return factor.reshape(factor.shape + (1,) * (rows.ndim - factor.ndim))


def entropy_gradient(logits: Tensor) -> Tensor:
    """∂H/∂z_k = −π_k (log π_k + H), and 0 where π_k = 0."""
    log_probs = logits.log_softmax(-1)
    probs = log_probs.exp()
    products = torch.where(probs > 0, probs * log_probs, torch.zeros_like(probs))
    return -products + probs * products.sum(-1, keepdim=True)


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
        mean = problem.parameters[name].mean(-1, keepdim=True)
        return _log_of_drawn(problem, leaf - leaf.mean(-1, keepdim=True) + mean)
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
    if problem.family is Categorical:
        return torch.nn.functional.one_hot(problem.value.long(), categories).double()
    return problem.value.double()


def statement_of(part: Part) -> RuleStatement:
    """The rule of one parameter, with the factor that multiplies it."""
    rule = part.rule
    symbol = next(
        (s for s, read in rule.symbols.items() if read in (part.name, f"base_dist.{part.name}")),
        None,
    )
    if symbol is not None and f"{symbol}_k" in rule.equation:
        symbol += "_k"
    left, factor = _SIDES.get(part.asked or "", (part.of, "g"))
    body = f"{factor} · ({rule.equation})" if factor else rule.equation
    if part.bonus is not None:
        body += " − h π (log π + H)"
    return RuleStatement(
        name=rule.name,
        parameter=part.called,
        coordinates=rule.coordinates or "",
        equation=f"∂ {left}/∂{symbol or part.name} = {body}",
        terms=_terms(part, factor),
        result=numbers_of(part.result),
        reference=rule.reference,
    )


# What is differentiated -> how the equation writes it, and the factor that it puts before the rule.
_SIDES = {"log_prob": ("log p", ""), "prob": ("p", "p")}


def _terms(part: Part, factor: str) -> tuple[Term, ...]:
    """The symbols of the rule, its summands, and the factor before it."""
    problem, dist = part.problem, part.problem.distribution()
    terms = []
    for symbol, read in part.rule.symbols.items():
        if read in (part.name, f"base_dist.{part.name}"):
            terms.append(Term(symbol, "symbol", part.called, numbers_of(part.parameter)))
            continue
        tensor = problem.value if read == "value" else torch.as_tensor(attrgetter(read)(dist))
        terms.append(Term(symbol, "symbol", read, numbers_of(tensor)))
    if factor:
        meaning = "probability" if part.asked == "prob" else f"∂ {part.of}/∂ log p"
        terms.append(Term(factor, "factor", meaning, numbers_of(part.factor)))
    if part.bonus is not None:
        terms.append(Term("h", "factor", f"∂ {part.of}/∂ entropy", numbers_of(part.bonus)))
    summands = part.rule.terms_at(problem.read(part.rule), problem.value)
    return (*terms, *(Term(s, "summand", "", numbers_of(t)) for s, t in summands.items()))
