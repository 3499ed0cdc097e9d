"""(distribution class, parameter) → rule, and `eligibility`, which applies it.

A rule is a pure function ``rule(value, <attributes of the distribution>)``: the names of its
arguments after ``value`` are the names of the attributes that it reads, so nothing stands between
the registry and the formula.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import singledispatch
from typing import TypeVar

from torch import Tensor
from torch.distributions import Distribution

from eligibility.errors import InvalidValueError, UnsupportedDistributionError
from eligibility.shapes import check_sample_shape

Function = TypeVar("Function", bound=Callable[..., object])


@dataclass(frozen=True)
class Rule:
    """One closed form and what a reader needs to know about it.

    Attributes:
        distribution: The class it was registered for.
        parameter: The parameter it differentiates with respect to.
        function: ``function(value, *attributes) -> Tensor``, elementwise over samples and batch.
        equation: The formula in Unicode.
        reference: Author, year, equation.
        coordinates: The convention, where a parameter has several; else None.
    """

    distribution: type[Distribution]
    parameter: str
    function: Callable[..., Tensor]
    equation: str
    reference: str
    coordinates: str | None = None

    @property
    def reads(self) -> tuple[str, ...]:
        """The attributes of the distribution that the formula reads."""
        return tuple(inspect.signature(self.function).parameters)[1:]

    def __call__(self, dist: Distribution, value: Tensor) -> Tensor:
        """The eligibility of each sample: value's batch shape + the parameter's event shape."""
        return self.function(value, *(getattr(dist, name) for name in self.reads))


# class -> parameter -> coordinates (None: the parameter has one convention only) -> rule
_RULES: dict[type[Distribution], dict[str, dict[str | None, Rule]]] = {}
# class -> a user's function of the whole distribution
_CUSTOM: dict[type[Distribution], Callable[[Distribution, Tensor], dict[str, Tensor]]] = {}


def register_eligibility(
    distribution: type[Distribution] | tuple[type[Distribution], ...],
    parameter: str | None = None,
    *,
    equation: str = "",
    reference: str = "",
    coordinates: str | None = None,
) -> Callable[[Function], Function]:
    """Decorator that registers a closed form, as torch's ``register_kl`` does for divergences.

    With a ``parameter``, the function is ``rule(value, …)`` and the names of its further arguments
    are attributes of the distribution. Without one, it is ``rule(dist, value)`` and returns a
    dictionary of all its parameters' eligibilities. A subclass inherits the rules of its bases.

    Args:
        distribution: The class, or several that share the formula.
        parameter: The attribute that the formula differentiates with respect to.
        equation: The formula in Unicode, shown by ``explain``.
        reference: Where it comes from: author, year, equation.
        coordinates: The name of the convention, where the parameter has several.

    Example:
        >>> import torch
        >>> from torch.distributions import Laplace
        >>> class UnitLaplace(Laplace):
        ...     def __init__(self, loc):
        ...         super().__init__(loc, torch.ones_like(loc))
        >>> @register_eligibility(UnitLaplace, "loc", equation="sign(y − μ)")
        ... def unit_laplace_loc(value, loc):
        ...     return torch.sign(value - loc)
        >>> eligibility(UnitLaplace(torch.zeros(2)), torch.tensor([0.5, -3.0]), wrt="loc")
        {'loc': tensor([ 1., -1.])}
    """
    classes = distribution if isinstance(distribution, tuple) else (distribution,)

    def register(function: Function) -> Function:
        for cls in classes:
            if parameter is None:
                _CUSTOM[cls] = function  # type: ignore[assignment]  # checked when it is called
            else:
                rule = Rule(cls, parameter, function, equation, reference, coordinates)  # type: ignore[arg-type]  # likewise
                _RULES.setdefault(cls, {}).setdefault(parameter, {})[coordinates] = rule
        return function

    return register


def supported_distributions() -> tuple[type[Distribution], ...]:
    """The classes with a registered rule, by name. Their subclasses are supported too.

    Example:
        >>> [cls.__name__ for cls in supported_distributions()][:3]
        ['Bernoulli', 'Binomial', 'Categorical']
    """
    return tuple(sorted({*_RULES, *_CUSTOM}, key=lambda cls: cls.__name__))


def find_rule(cls: type[Distribution], parameter: str, coordinates: str | None = None) -> Rule:
    """The rule of ``cls`` or of its nearest base that has one.

    Raises:
        UnsupportedDistributionError: No rule for the class or for the parameter.
        InvalidValueError: The parameter has no such coordinates.
    """
    conventions = _parameters(cls).get(parameter)
    if conventions is None:
        raise UnsupportedDistributionError(
            f"`wrt` of {cls.__name__}",
            repr(parameter),
            " or ".join(map(repr, _parameters(cls))),
            "register a rule for it with eligibility.register_eligibility",
        )
    if coordinates in conventions:
        return conventions[coordinates]
    if coordinates is None:
        return next(iter(conventions.values()))
    names = [repr(name) for name in conventions if name is not None]
    raise InvalidValueError(
        f"`coordinates` of the {parameter} of {cls.__name__}",
        repr(coordinates),
        " or ".join(names) if names else "none: the parameter has one convention only",
        "see the documentation of eligibility.rules.multinomial",
    )


def rules_of(cls: type[Distribution]) -> tuple[Rule, ...]:
    """All rules of a class, registered order; the first of a parameter is its default."""
    return tuple(rule for conventions in _parameters(cls).values() for rule in conventions.values())


def eligibility(
    dist: Distribution,
    value: Tensor,
    wrt: str | tuple[str, ...] | None = None,
    coordinates: str | None = None,
) -> dict[str, Tensor]:
    """Williams' characteristic eligibility ``∂ log p(value) / ∂ parameter``, in closed form.

    Args:
        dist: Any supported ``torch.distributions`` object.
        value: Outcomes, shape ``[*samples, *batch, *event]``, in the support of ``dist``.
        wrt: The parameter, or several; default: what ``dist`` was constructed with.
        coordinates: For the probs of the categorical family: "weights" (default, torch's rule),
            "ambient", "free" or "tangent"; see `eligibility.rules.multinomial`.

    Returns:
        One tensor a parameter: value's batch shape + the parameter's event shape. One eligibility
        per sample, never averaged.

    Raises:
        UnsupportedDistributionError: No rule for the class or for the parameter.
        ShapeError, InvalidTypeError, InvalidValueError: ``value`` is not an outcome of ``dist``.

    Notes:
        A stock torch object has divided its probs by their sum, so there the answer is at Σ = 1.

    Example:
        >>> import torch
        >>> policy = torch.distributions.Categorical(probs=torch.tensor([0.69, 0.1, 0.2, 0.01]))
        >>> eligibility(policy, torch.tensor(0))["probs"] * 0.69
        tensor([ 0.3100, -0.6900, -0.6900, -0.6900])

    References:
        Williams 1992, Machine Learning 8:229-256, §4.
    """
    cls = type(dist)
    custom = next((_CUSTOM[base] for base in cls.__mro__ if base in _CUSTOM), None)
    check_value(dist, value)
    if custom is not None:
        results = custom(dist, value)
        names = tuple(results) if wrt is None else _as_tuple(wrt)
        return {name: results[name] for name in names}
    names = constructed_parameters(dist) if wrt is None else _as_tuple(wrt)
    rules = {name: find_rule(cls, name, coordinates) for name in names}
    return {name: rule(dist, value) for name, rule in rules.items()}


def constructed_parameters(dist: Distribution) -> tuple[str, ...]:
    """The names of the parameters that ``dist`` was constructed with, as far as they have rules."""
    inner = getattr(dist, "_categorical", dist)
    held = vars(inner)
    names = [name for name in _parameters(type(dist)) if name in held]
    if {"probs", "logits"} <= set(names):
        # The other one was computed and kept on first use; `_param` is the one that was given.
        names.remove("logits" if held["_param"] is held["probs"] else "probs")
    return tuple(names)


@singledispatch
def check_value(dist: Distribution, value: Tensor) -> None:
    """Raise unless ``value`` is an outcome of ``dist``; families register their own checks."""
    check_sample_shape(value, dist.batch_shape, dist.event_shape)
    support = dist.support
    if support is not None and not bool(support.check(value).all()):  # type: ignore[no-untyped-call]  # torch
        raise InvalidValueError(
            "`value`",
            f"outcomes outside the support of {type(dist).__name__}",
            str(support),
            "pass what the distribution can sample",
        )


def _parameters(cls: type[Distribution]) -> dict[str, dict[str | None, Rule]]:
    for base in cls.__mro__:
        if base in _RULES:
            return _RULES[base]
    raise UnsupportedDistributionError(
        "`dist`",
        cls.__name__,
        "a distribution of eligibility.supported_distributions()",
        "register a rule for it with eligibility.register_eligibility",
    )


def _as_tuple(names: str | tuple[str, ...]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)
