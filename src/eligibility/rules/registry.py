"""(distribution class, parameter) → rule, and `eligibility`, which applies it.

Three kinds of entry, found along the method resolution order of a class, nearest first: closed
forms of one parameter; rules composed for the distribution at hand (`Independent`, mixtures, …);
functions of a whole distribution that a user registers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.distributions import Distribution

from eligibility.errors import (
    InvalidReinforceError,
    InvalidTypeError,
    InvalidValueError,
    UnsupportedDistributionError,
)
from eligibility.rules.constructed import check_unambiguous, given_names
from eligibility.rules.outcomes import check_value
from eligibility.rules.rule import Rule, arguments_after_value
from eligibility.scalars import described

Function = TypeVar("Function", bound=Callable[..., object])


@dataclass(frozen=True)
class Composition:
    """The rules of a distribution that is made of others."""

    # Function of the distribution to what it was constructed with.
    parameters: Callable[[Any], tuple[str, ...]]
    # Function of (distribution, parameter, coordinates) to the rule.
    rule: Callable[[Any, str, str | None], Rule]


# class -> parameter -> its rules in registered order: one for each of its coordinates, and one for
# each parameterisation that the distribution may be given in
_RULES: dict[type[Distribution], dict[str, list[Rule]]] = {}
# class -> how to make the rules of a distribution that is made of others
_COMPOSED: dict[type[Distribution], Composition] = {}
# class -> a user's function of the whole distribution
_CUSTOM: dict[type[Distribution], Callable[[Distribution, Tensor], dict[str, Tensor]]] = {}


def register_eligibility(
    distribution: type[Distribution] | tuple[type[Distribution], ...],
    parameter: str | None = None,
    *,
    name: str = "",
    equation: str = "",
    reference: str = "",
    symbols: Mapping[str, str] | None = None,
    terms: Callable[..., Mapping[str, Tensor]] | None = None,
    coordinates: str | None = None,
    reads: tuple[str, ...] | None = None,
    why_biased: Callable[[Distribution], str | None] | None = None,
    working: torch.dtype = torch.float64,
) -> Callable[[Function], Function]:
    """Decorator that registers a closed form, as torch's ``register_kl`` does for divergences.

    With a ``parameter``, the function is ``rule(value, …)`` and the names of its further arguments
    are attributes of the distribution. Without one, it is ``rule(dist, value)`` and returns a
    dictionary of all its parameters' eligibilities. A subclass inherits the rules of its bases; if
    several apply, the rule of the nearest base is taken.

    Args:
        distribution: The class, or several that share the formula.
        parameter: The attribute that the formula differentiates with respect to.
        name: What the rule is called in a sentence; default: "<class>, <parameter>".
        equation: The formula in Unicode, from which ``explain`` writes LaTeX and MathML too.
        reference: Where it comes from: author, year, equation.
        symbols: Symbol of the equation -> ``value`` or the attribute it stands for.
        terms: Function of the same arguments that returns an ordered dictionary symbol -> tensor;
            their sum is the eligibility.
        coordinates: The name of the convention, where the parameter has several.
        reads: The attributes that the function reads; default: those its arguments are named after.
        why_biased: Function of the distribution to the reason why E[eligibility] is not 0, or None.
        working: The formula is evaluated in this dtype or a wider one and rounded once.

    Example:
        >>> import torch
        >>> from torch.distributions import Laplace
        >>> class UnitLaplace(Laplace):
        ...     def __init__(self, loc):
        ...         super().__init__(loc, torch.ones_like(loc))
        >>> @register_eligibility(UnitLaplace, "loc", equation="sign(y − μ)")
        ... def unit_laplace_loc(value, loc):
        ...     return torch.sign(value - loc)
        >>> eligibility(UnitLaplace(torch.zeros(2)), torch.tensor([0.5, -3.0]))
        {'loc': tensor([ 1., -1.])}
    """
    classes = distribution if isinstance(distribution, tuple) else (distribution,)
    for cls in classes:
        if not (isinstance(cls, type) and issubclass(cls, Distribution)):
            raise InvalidTypeError(
                "`distribution`",
                described(cls),
                "a class of torch.distributions, or derived from one",
                "pass the class itself, not an object or its name",
            )
    if parameter is not None:
        as_names(parameter)

    def register(function: Function) -> Function:
        if parameter is None:
            for cls in classes:
                _CUSTOM[cls] = function  # type: ignore[assignment]  # checked when it is called
            return function
        attributes = reads or arguments_after_value(function)
        for cls in classes:
            own = _RULES.setdefault(cls, {}).setdefault(parameter, [])
            rule = Rule(
                distribution=cls,
                parameter=parameter,
                function=function,  # type: ignore[arg-type]  # of tensors
                reads=attributes,
                name=name or f"{cls.__name__}, {parameter}",
                equation=equation,
                reference=reference,
                symbols=dict(symbols or {}),
                coordinates=coordinates,
                summands=terms,
                why_biased=why_biased,
                working=working,
            )
            own[:] = [
                old for old in own if (old.coordinates, old.reads) != (coordinates, rule.reads)
            ]
            own.append(rule)
        return function

    return register


def register_composition(distribution: type[Distribution], composition: Composition) -> None:
    """Register how to make the rules of a distribution that is made of others."""
    _COMPOSED[distribution] = composition


def supported_distributions() -> tuple[type[Distribution], ...]:
    """The classes with a registered rule, by name. Their subclasses are supported too.

    Example:
        >>> [cls.__name__ for cls in supported_distributions()][:3]
        ['Bernoulli', 'Beta', 'Binomial']
    """
    return tuple(sorted({*_RULES, *_COMPOSED, *_CUSTOM}, key=lambda cls: cls.__name__))


def shipped_distributions() -> tuple[type[Distribution], ...]:
    """Those that torch or this package defines, without the ones of a user or of an example."""
    return tuple(
        cls
        for cls in supported_distributions()
        if cls.__module__.startswith(("torch.", "eligibility."))
        and vars(sys.modules[cls.__module__]).get(cls.__name__) is cls
    )


def rules_of(cls: type[Distribution]) -> tuple[Rule, ...]:
    """The closed forms of ``cls`` or of its nearest base that has some, registered order."""
    return tuple(rule for rules in _nearest_rules(cls).values() for rule in rules)


def _nearest_rules(cls: type[Distribution]) -> dict[str, list[Rule]]:
    for base in cls.__mro__:
        if base in _RULES:
            return _RULES[base]
    raise _unsupported(cls)


def find_rule(dist: Distribution, parameter: str, coordinates: str | None = None) -> Rule:
    """The rule for ``dist``: of its class or of its nearest base that has one.

    Where there is one formula for each parameterisation, it is the one that reads what ``dist`` was
    constructed with, so that nothing is lost in a conversion.

    Example:
        >>> from torch.distributions import Bernoulli
        >>> find_rule(Bernoulli(logits=torch.tensor(0.0)), "logits").equation
        'y − σ(l)'
    """
    for cls in type(dist).__mro__:
        if cls in _CUSTOM:
            return _custom_rule(cls, parameter)
        if cls in _COMPOSED:
            return _COMPOSED[cls].rule(dist, parameter, coordinates)
        if parameter in _RULES.get(cls, {}):
            return _reads_what_is_given(_in_coordinates(_RULES[cls][parameter], coordinates), dist)
    known = rules_of(type(dist))
    raise UnsupportedDistributionError(
        f"`wrt` of {type(dist).__name__}",
        repr(parameter),
        " or ".join(dict.fromkeys(repr(rule.parameter) for rule in known)),
        "register a rule for it with eligibility.register_eligibility",
    )


def eligibility(
    dist: Distribution,
    value: Tensor,
    wrt: str | tuple[str, ...] | None = None,
    coordinates: str | None = None,
    *,
    allow_parameter_dependent_support: bool = False,
) -> dict[str, Tensor]:
    """Williams' characteristic eligibility ``∂ log p(value) / ∂ parameter``, in closed form.

    Args:
        dist: Any supported ``torch.distributions`` object.
        value: Outcomes, shape ``[*samples, *batch, *event]``, in the support of ``dist``.
        wrt: The parameter, or several; default: what ``dist`` was constructed with.
        coordinates: For the probs of the categorical family: "weights" (default, torch's rule),
            "ambient", "free" or "tangent"; see `eligibility.rules.multinomial`.
        allow_parameter_dependent_support: Return the number also where E[eligibility] is not 0
            because the parameter moves the support, as the bounds of a Uniform do.

    Returns:
        One tensor a parameter: value's batch shape + the parameter's event shape. One eligibility
        per sample, never averaged.

    Raises:
        UnsupportedDistributionError: No rule for the class or for the parameter.
        ShapeError, InvalidTypeError, InvalidValueError: ``value`` is not an outcome of ``dist``.
        InvalidReinforceError: E[eligibility] is not 0, so that REINFORCE with it is biased.

    Notes:
        A stock torch object has divided its probs by their sum, so there the answer is at Σ = 1.
        ``Independent`` and ``TransformedDistribution`` have the parameters of their base. A mixture
        names its own by path: ``mixture_distribution.logits``, ``component_distribution.loc``.
        float16 and bfloat16 are computed in a wider dtype inside and rounded once.

    Example:
        >>> import torch
        >>> policy = torch.distributions.Categorical(probs=torch.tensor([0.69, 0.1, 0.2, 0.01]))
        >>> eligibility(policy, torch.tensor(0))["probs"] * 0.69
        tensor([ 0.3100, -0.6900, -0.6900, -0.6900])

    References:
        Williams 1992, Machine Learning 8:229-256, §4.
    """
    nearest = nearest_entry(type(dist))
    check_value(dist, value)
    if wrt is None and nearest in _CUSTOM:
        return _CUSTOM[nearest](dist, value)
    found = {}
    for name in constructed_parameters(dist) if wrt is None else as_names(wrt):
        rule = find_rule(dist, name, coordinates)
        if rule.why_biased and not allow_parameter_dependent_support:
            _check_unbiased(rule.why_biased(dist), rule, dist)
        found[name] = rule.at(rule.read(dist), value)
    return found


def constructed_parameters(dist: Distribution) -> tuple[str, ...]:
    """The names of the parameters that ``dist`` was constructed with, as far as they have rules."""
    nearest = nearest_entry(type(dist))
    if nearest in _COMPOSED:
        return _COMPOSED[nearest].parameters(dist)
    given = given_names(dist, _nearest_rules(type(dist)))
    check_unambiguous(given)
    return given


def nearest_entry(cls: type[Distribution]) -> type[Distribution]:
    """The first class of the method resolution order that anything was registered for."""
    for base in cls.__mro__:
        if base in _CUSTOM or base in _COMPOSED or base in _RULES:
            return base
    raise _unsupported(cls)


def _in_coordinates(rules: list[Rule], coordinates: str | None) -> list[Rule]:
    wanted = rules[0].coordinates if coordinates is None else coordinates
    matching = [rule for rule in rules if rule.coordinates == wanted]
    if matching:
        return matching
    names = dict.fromkeys(repr(rule.coordinates) for rule in rules if rule.coordinates is not None)
    raise InvalidValueError(
        f"`coordinates` of the {rules[0].parameter} of {rules[0].distribution.__name__}",
        repr(coordinates),
        " or ".join(names) if names else "none, because the parameter has only one convention",
        "see the documentation of eligibility.rules.multinomial",
    )


def _reads_what_is_given(rules: list[Rule], dist: Distribution) -> Rule:
    if len(rules) == 1:
        return rules[0]
    given = given_names(dist, dict.fromkeys(chain(*[rule.reads for rule in rules])))
    return next((rule for rule in rules if set(given).issuperset(rule.reads)), rules[0])


def _custom_rule(cls: type[Distribution], parameter: str) -> Rule:
    def function(value: Tensor, dist: Distribution) -> Tensor:
        results = _CUSTOM[cls](dist, value)
        if parameter not in results:
            raise UnsupportedDistributionError(
                f"`wrt` of {cls.__name__}",
                repr(parameter),
                " or ".join(map(repr, results)),
                "return it from the function that is registered for the class",
            )
        return results[parameter]

    title = f"{cls.__name__}, {parameter}"
    return Rule(cls, parameter, function, ("dist",), title, f"∂ log p(value)/∂{parameter}")


def _check_unbiased(reason: str | None, rule: Rule, dist: Distribution) -> None:
    if reason is not None:
        raise InvalidReinforceError(
            f"the eligibility of the {rule.parameter} of {type(dist).__name__}",
            f"an expectation that is not 0: {reason}",
            "a parameter that does not move the support",
            "choose the others with wrt, use a pathwise gradient (rsample), or pass "
            "allow_parameter_dependent_support=True to get the number anyway",
        )


def _unsupported(cls: type[Distribution]) -> UnsupportedDistributionError:
    return UnsupportedDistributionError(
        "`dist`",
        cls.__name__,
        "a distribution of eligibility.supported_distributions()",
        "register a rule for it with eligibility.register_eligibility",
    )


def as_names(wrt: str | tuple[str, ...]) -> tuple[str, ...]:
    """The parameters that ``wrt`` names; raise unless it names any."""
    names = (wrt,) if isinstance(wrt, str) else wrt
    if not isinstance(names, (tuple, list)) or not all(isinstance(name, str) for name in names):
        raise InvalidTypeError(
            "`wrt`", described(wrt), "the name of a parameter, or several", "pass for example 'loc'"
        )
    return tuple(names)
