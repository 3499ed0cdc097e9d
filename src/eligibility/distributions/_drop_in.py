"""What the five classes add to torch's: eligibilities, Fisher information, strict values."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.distributions import Distribution

from eligibility.arguments import check_generator, check_sizes
from eligibility.errors import InvalidValueError, ShapeError
from eligibility.rules.fisher import fisher_information
from eligibility.rules.outcomes import check_value
from eligibility.rules.registry import eligibility
from eligibility.shapes import are_values_readable, check_tensor

NO_SHAPE = torch.Size()
Self = TypeVar("Self", bound="DropIn")


class DropIn(Distribution):
    """Mixed in before one of torch's classes.

    Attributes:
        given_parameter: "probs" or "logits", whichever it was constructed with.
    """

    given_parameter: str

    def eligibility(
        self,
        value: Tensor,
        wrt: str | tuple[str, ...] | None = None,
        coordinates: str | None = None,
    ) -> dict[str, Tensor]:
        """The closed-form eligibilities of ``value``; see `eligibility.eligibility`."""
        return eligibility(self, value, wrt, coordinates)

    def fisher_information(self, wrt: str | tuple[str, ...] | None = None) -> dict[str, Tensor]:
        """The Fisher information of the parameters; see `eligibility.fisher_information`."""
        return fisher_information(self, wrt)

    def _check_value(self, value: Tensor) -> None:
        """Raise unless ``value`` is an outcome; its values are read only if validation is on."""
        raise NotImplementedError

    def expand(self: Self, batch_shape: Any, _instance: Any = None) -> Self:
        """The same distribution for a larger batch, without new memory."""
        new: Self = type(self).__new__(type(self)) if _instance is None else _instance
        self._expand_into(new, torch.Size(batch_shape))
        new._describe(torch.Size(batch_shape), self._event_shape, self._validate_args)
        return new

    def _expand_into(self, new: Any, batch_shape: torch.Size) -> None:
        """Give ``new`` the parameters, for a larger batch."""
        raise NotImplementedError

    def _describe(
        self, batch_shape: torch.Size, event_shape: torch.Size, validate: bool | None
    ) -> None:
        """What the constructor of torch's base class stores, without its checks."""
        self._batch_shape = batch_shape
        self._event_shape = event_shape
        if validate is not None:
            self._validate_args = validate

    def _may_check(self, *tensors: Tensor) -> bool:
        """Whether values are to be checked: validation is on, and the numbers can be read."""
        return self._validate_args and are_values_readable(*tensors)


@check_value.register
def _(dist: DropIn, value: Tensor) -> None:
    dist._check_value(value)


def one_of(probs: Any, logits: Any) -> tuple[Any, bool]:
    """The parameter that is not None, and whether it is ``probs``."""
    if probs is not None and logits is None:
        return probs, True
    if logits is not None and probs is None:
        return logits, False
    raise InvalidValueError(
        "`probs` and `logits`",
        "both" if probs is not None else "neither",
        "exactly one of them",
        "pass probs= or logits=",
    )


def check_full_shape(dist: Distribution, value: Tensor) -> None:
    """Raise unless ``value`` is ``[*samples, *batch, *event]``.

    One event for the whole batch is not offered here: with as many rows as categories, indices
    ``[B]`` would pass for an event ``[K]``.
    """
    check_tensor(value, "value")
    wanted = dist.batch_shape + dist.event_shape
    if value.shape[max(0, value.ndim - len(wanted)) :] != wanted:
        raise ShapeError(
            "`value`",
            f"shape {list(value.shape)}",
            f"[*samples, {', '.join(map(str, wanted))}]",
            f"pass vectors for {type(dist).__name__}, not indices; nothing is broadcast silently",
        )


def size_of_draw(sample_shape: Any, generator: object, device: torch.device) -> torch.Size:
    """How many to draw; raise for a shape that is none, and for a generator that is none."""
    if generator is not None:
        check_generator(generator, device)
    return check_sizes(sample_shape, "sample_shape")


def safe_log(weights: Tensor) -> Tensor:
    """log w, and −∞ at 0 with a gradient of exactly 0: what has no weight is not in the support."""
    positive = weights > 0
    return torch.where(positive, torch.where(positive, weights, 1.0).log(), float("-inf"))


def rounded(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """``tensor`` in ``dtype``; where that is nothing to do, without the cost of a call to torch."""
    return tensor if tensor.dtype == dtype else tensor.to(dtype)
