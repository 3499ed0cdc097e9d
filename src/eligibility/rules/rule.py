"""What one closed form is: the formula, its terms, and what a reader needs to know about it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from eligibility.shapes import double_precision


@dataclass(frozen=True)
class Rule:
    """One closed form ``∂ log p(value)/∂ parameter`` of one distribution.

    A formula is a pure function ``function(value, *attributes)``; what it reads are attributes of
    the distribution, by default those that its arguments are named after (``dist`` stands for the
    distribution itself). A rule reads them, widens them, and rounds the result once.
    """

    distribution: type[Distribution]  # the class it was registered for
    parameter: str  # the parameter it differentiates with respect to
    function: Callable[..., Tensor]  # the formula, elementwise over samples and batch
    reads: tuple[str, ...]  # the attributes of the distribution that the formula reads, in order
    name: str  # what the rule is called in a sentence: "Poisson score of the rate"
    equation: str  # the formula in Unicode; LaTeX and MathML are written from it
    reference: str = ""  # author, year, equation
    # Symbol of the equation -> ``value`` or the attribute that it stands for.
    symbols: Mapping[str, str] = field(default_factory=dict)
    coordinates: str | None = None  # the convention, where a parameter has several; else None
    # Function of the arguments of ``function`` to an ordered dictionary symbol -> tensor; the
    # tensors sum to the eligibility. None: the formula is one term.
    summands: Callable[..., Mapping[str, Tensor]] | None = None
    # Function of the distribution to the reason why E[eligibility] is not 0 there, or None if it is
    # 0. None instead of a function: it is 0 everywhere.
    why_biased: Callable[[Distribution], str | None] | None = None
    working: torch.dtype = torch.float64  # the formula is evaluated in this dtype or a wider one

    def __call__(self, dist: Distribution, value: Tensor) -> Tensor:
        """The eligibility of each sample: value's batch shape + the parameter's event shape."""
        return self.at(self.read(dist), value)

    def at(self, parameters: Mapping[str, Any], value: Tensor) -> Tensor:
        """The same for the numbers themselves: ``parameters`` maps each of ``reads`` to its own.

        Example:
            >>> from eligibility.rules.registry import find_rule
            >>> rule = find_rule(torch.distributions.Poisson(1.0), "rate")
            >>> rule.at({"rate": torch.tensor(2.0)}, torch.tensor(3))
            tensor(0.5000)
        """
        arguments, dtype = self._arguments(parameters, value)
        result = self.function(*arguments)
        return result if dtype is None else result.to(dtype)

    def read(self, dist: Distribution) -> dict[str, Any]:
        """What the formula reads of ``dist``."""
        return {n: dist if n == "dist" else read_parameter(dist, n) for n in self.reads}

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
        return self.terms_at(self.read(dist), value)

    def terms_at(self, parameters: Mapping[str, Any], value: Tensor) -> dict[str, Tensor]:
        """The same for the numbers themselves, as `at` takes them."""
        total = self.at(parameters, value)
        if self.summands is None:
            return {self.equation: total}
        arguments, dtype = self._arguments(parameters, value)
        parts = self.summands(*arguments)
        return {
            symbol: (part if dtype is None else part.to(dtype)).expand_as(total)
            for symbol, part in parts.items()
        }

    def dtype(self, dist: Distribution) -> torch.dtype:
        """The dtype of the eligibility: that of the attributes that the formula reads."""
        return _common_dtype(self.read(dist).values()) or torch.get_default_dtype()

    def _arguments(
        self, parameters: Mapping[str, Any], value: Tensor
    ) -> tuple[list[Any], torch.dtype | None]:
        """What the formula takes, in the dtype to compute in, and the dtype to round to.

        A rule that reads a whole distribution leaves both to the rules inside.
        """
        arguments = [value, *(parameters[name] for name in self.reads)]
        dtype = _common_dtype(arguments[1:])
        if dtype is None:
            return arguments, None
        double = double_precision(value.device)
        inside = torch.promote_types(
            dtype, double if self.working == torch.float64 else self.working
        )
        for position, argument in enumerate(arguments):
            if isinstance(argument, Tensor) and argument.is_floating_point():
                arguments[position] = argument.to(inside)
        # torch takes the logarithm of an integer tensor in its default dtype.
        if not value.is_floating_point() and _is_continuous(self.distribution):
            arguments[0] = value.to(double)
        return arguments, dtype


@functools.singledispatch
def read_parameter(dist: Distribution, name: str) -> Any:
    """The attribute of ``dist`` that a formula reads; a class that keeps it as given, says so."""
    return getattr(dist, name)


def held_tensor(dist: Distribution) -> Tensor:
    """A tensor with the dtype and the device of the parameters of ``dist``."""
    for value in vars(dist).values():
        if isinstance(value, Tensor) and value.is_floating_point():
            return value.detach()
        if isinstance(value, Distribution):  # the parts of a mixture, the base of a transform
            return held_tensor(value)
    return torch.zeros(())


def arguments_after_value(function: Callable[..., object]) -> tuple[str, ...]:
    """The names of the arguments of ``function`` after its first."""
    return tuple(inspect.signature(function).parameters)[1:]


def _common_dtype(arguments: Iterable[Any]) -> torch.dtype | None:
    """The dtype of the floating-point tensors among ``arguments``; None if there are none."""
    found: torch.dtype | None = None
    for argument in arguments:
        if isinstance(argument, Tensor) and argument.is_floating_point():
            found = argument.dtype if found is None else torch.promote_types(found, argument.dtype)
    return found


def _is_continuous(cls: type[Distribution]) -> bool:
    """Whether ``cls`` says that its outcomes are real numbers, which do not count or name."""
    try:
        return not cls.support.is_discrete  # type: ignore[attr-defined]  # of the constraint
    except (AttributeError, NotImplementedError):
        return False
