"""What one closed form is: the formula, its terms, and what a reader needs to know about it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution
from torch.distributions.constraints import Constraint


@dataclass(frozen=True)
class Rule:
    """One closed form ``∂ log p(value)/∂ parameter`` of one distribution.

    A formula is a pure function ``function(value, *attributes)``; what it reads are attributes of
    the distribution, by default those that its arguments are named after (``dist`` stands for the
    distribution itself), so nothing stands between a rule and its formula.

    Attributes:
        distribution: The class it was registered for.
        parameter: The parameter it differentiates with respect to.
        function: The formula, elementwise over samples and batch.
        reads: The attributes of the distribution that the formula reads, in order.
        name: What the rule is called in a sentence: "Poisson score of the rate".
        equation: The formula in Unicode.
        latex: The formula in LaTeX, without dollar signs.
        reference: Author, year, equation.
        symbols: Symbol of the equation -> ``value`` or the attribute that it stands for.
        coordinates: The convention, where a parameter has several; else None.
        summands: Function of the arguments of ``function`` to an ordered dictionary
            symbol -> tensor; the tensors sum to the eligibility. None: the formula is one term.
        why_biased: Function of the distribution to the reason why E[eligibility] is not 0 there,
            or None if it is 0. None instead of a function: it is 0 everywhere.
    """

    distribution: type[Distribution]
    parameter: str
    function: Callable[..., Tensor]
    reads: tuple[str, ...]
    name: str
    equation: str
    latex: str = ""
    reference: str = ""
    symbols: Mapping[str, str] = field(default_factory=dict)
    coordinates: str | None = None
    summands: Callable[..., Mapping[str, Tensor]] | None = None
    why_biased: Callable[[Distribution], str | None] | None = None

    def __call__(self, dist: Distribution, value: Tensor) -> Tensor:
        """The eligibility of each sample: value's batch shape + the parameter's event shape."""
        return self.function(self._outcome(dist, value), *self._arguments(dist))

    def terms(self, dist: Distribution, value: Tensor) -> dict[str, Tensor]:
        """Symbol -> tensor, in the order of the equation; each has the eligibility's shape.

        The eligibility itself is computed without the cancellation that this sum may suffer.

        Example:
            >>> from torch.distributions import Categorical
            >>> from eligibility.rules.registry import find_rule
            >>> policy = Categorical(probs=torch.tensor([0.5, 0.25, 0.25]))
            >>> find_rule(policy, "probs").terms(policy, torch.tensor(0))
            {'[k = a]/w_k': tensor([2., 0., 0.]), '−1/Σw': tensor([-1., -1., -1.])}
        """
        total = self(dist, value)
        if self.summands is None:
            return {self.equation: total}
        parts = self.summands(self._outcome(dist, value), *self._arguments(dist))
        return {symbol: part.expand_as(total) for symbol, part in parts.items()}

    def dtype(self, dist: Distribution) -> torch.dtype:
        """The dtype of the eligibility: that of the attributes that the formula reads."""
        return _common_dtype([a for a in self._arguments(dist) if _is_floating(a)])

    def _outcome(self, dist: Distribution, value: Tensor) -> Tensor:
        """``value``; the whole numbers of an integer tensor as numbers, unless they count or name.

        torch takes the logarithm of an integer tensor in its default dtype.
        """
        if value.is_floating_point() or "dist" in self.reads:  # then the rule inside decides
            return value
        support = support_of(dist)
        if support is None or support.is_discrete:
            return value
        return value.to(double_precision(value.device))

    def _arguments(self, dist: Distribution) -> tuple[Any, ...]:
        return tuple(dist if name == "dist" else read_parameter(dist, name) for name in self.reads)


@functools.singledispatch
def read_parameter(dist: Distribution, name: str) -> Any:
    """The attribute of ``dist`` that a formula reads; a class that keeps it as given, says so."""
    return getattr(dist, name)


def support_of(dist: Distribution) -> Constraint | None:
    """The support of ``dist``, or None if it does not say."""
    try:
        support: Constraint | None = dist.support
    except NotImplementedError:
        return None
    return support


def arguments_after_value(function: Callable[..., object]) -> tuple[str, ...]:
    """The names of the arguments of ``function`` after its first."""
    return tuple(inspect.signature(function).parameters)[1:]


def round_once(function: Callable[..., Any], working: torch.dtype) -> Callable[..., Any]:
    """``function`` evaluated in ``working`` or wider, its result rounded once to its input's dtype.

    The dtype of the result is that of the parameters, the arguments after the first one; the first
    is the value.
    """

    @functools.wraps(function)
    def evaluate(*args: Any, **kwargs: Any) -> Any:
        others = (a for name, a in kwargs.items() if name != "value")
        parameters = [a for a in (*args[1:], *others) if _is_floating(a)]
        if not parameters:
            return function(*args, **kwargs)
        rounded = _common_dtype(parameters)
        widest = double_precision(parameters[0].device)
        inside = torch.promote_types(rounded, min(working, widest, key=lambda d: d.itemsize))
        wide = {name: _widened(argument, inside) for name, argument in kwargs.items()}
        result = function(*(_widened(argument, inside) for argument in args), **wide)
        if isinstance(result, Mapping):
            return {symbol: part.to(rounded) for symbol, part in result.items()}
        return result.to(rounded)

    return evaluate


def double_precision(device: torch.device) -> torch.dtype:
    """float64, or the widest that ``device`` has."""
    return torch.float32 if device.type == "mps" else torch.float64


def _common_dtype(tensors: list[Tensor]) -> torch.dtype:
    return functools.reduce(torch.promote_types, (tensor.dtype for tensor in tensors))


def _widened(argument: Any, dtype: torch.dtype) -> Any:
    return argument.to(dtype) if _is_floating(argument) else argument


def _is_floating(argument: Any) -> bool:
    return isinstance(argument, Tensor) and argument.is_floating_point()
