"""A loss's parameters, filled by the names that trainers of language models give them."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn

from eligibility.audit.language.aliases import ADVANTAGES, field_of
from eligibility.audit.language.token_batch import TokenBatch
from eligibility.errors import InvalidTypeError, InvalidValueError
from eligibility.scalars import check_callable

WHOLE_BATCH = ("batch", "token_batch")


@dataclass(frozen=True)
class BoundLoss:
    """A loss that takes a `TokenBatch`, made of the user's functions.

    Attributes:
        loss: The user's loss.
        advantage: The user's advantages; None: the loss makes its own, or takes the rewards.
        micro_batch: Rows of each call of the loss; None: all.
        wide: Whether advantages that stand for the rewards are [B, T] instead of [B].
    """

    loss: Callable[..., Any]
    advantage: Callable[..., Any] | None = None
    micro_batch: int | None = None
    wide: bool = False

    def __call__(self, batch: TokenBatch) -> Tensor:
        """The loss, averaged over the micro-batches."""
        credit = self.credit(batch)
        rows = batch.tokens.shape[0]
        size = self.micro_batch or rows
        if size >= rows:
            return self.value(batch, credit)
        parts = [slice(start, start + size) for start in range(0, rows, size)]
        by_row = credit.shape[:1] == (rows,)
        values = [self.value(batch.rows(p), credit[p] if by_row else credit) for p in parts]
        return torch.stack(values).mean()

    def credit(self, batch: TokenBatch) -> Tensor:
        """The advantages, of the whole batch."""
        if self.advantage is not None:
            found = self.advantage(**filled(self.advantage, batch, None))
            found = found[0] if isinstance(found, tuple) else found
            if not isinstance(found, Tensor):
                raise InvalidTypeError(
                    "the result of `advantage`",
                    type(found).__name__,
                    "a tensor [B] or [B, T], or a tuple that begins with one",
                    "return the advantages",
                )
            return found
        if self.wide:
            return batch.rewards[:, None] * batch.mask
        return batch.rewards

    def value(self, batch: TokenBatch, credit: Tensor) -> Tensor:
        """The loss of one call."""
        return scalar(self.loss(**filled(self.loss, batch, credit)))


def bind(
    loss: Callable[..., Any],
    advantage: Callable[..., Any] | None,
    micro_batch: int | None,
    example: TokenBatch,
) -> BoundLoss:
    """The loss as a function of a `TokenBatch`; tried on an example.

    Args:
        loss: The user's; takes a `TokenBatch`, or parameters that are filled by name.
        advantage: The user's, likewise; None if there is none.
        micro_batch: Rows of each call; None: all.
        example: A batch whose number of rows is not its width.

    Raises:
        InvalidTypeError: Something is not a function, has a parameter that cannot be filled, or
            returns no scalar.
    """
    if advantage is not None:
        check_callable(advantage, "advantage", "pass the function that returns the advantages")
    if micro_batch is not None and micro_batch < 1:
        raise InvalidValueError(
            "`micro_batch`", f"{micro_batch}", "a number of rows of at least 1", "omit it"
        )
    bound = BoundLoss(loss, advantage, micro_batch)
    if advantage is not None or not any(name in ADVANTAGES for name in _parameters(loss)):
        bound(example)
        return bound
    try:
        bound(example)
    except (RuntimeError, IndexError, ValueError):
        # [B] advantages do not fit: the loss takes them by token
        bound = dataclasses.replace(bound, wide=True)
        bound(example)
    return bound


def filled(
    function: Callable[..., Any], batch: TokenBatch, credit: Tensor | None
) -> dict[str, Any]:
    """The arguments of the user's function, by name."""
    parameters = _parameters(function)
    required = [n for n, p in parameters.items() if p.default is inspect.Parameter.empty]
    if len(required) == 1 and field_of(required[0]) is None and required[0] not in ADVANTAGES:
        return {required[0]: batch}
    given: dict[str, Any] = {}
    for name, parameter in parameters.items():
        needed = parameter.default is inspect.Parameter.empty
        filled_in = needed or parameter.default is None  # a default that says: nothing
        if name in ADVANTAGES and credit is not None:
            given[name] = credit
        elif name in WHOLE_BATCH and needed:
            given[name] = batch
        elif (field := field_of(name, parameters)) and filled_in:
            given[name] = getattr(batch, field)
        elif needed:
            given[name] = _default_config(function, parameter)
    return given


def _default_config(function: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """A configuration whose fields all have defaults; else nothing can be filled."""
    try:
        hints: Mapping[str, Any] = typing.get_type_hints(_called(function))
    except (NameError, TypeError, AttributeError):
        hints = {}
    kind = hints.get(parameter.name)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        try:
            return kind()
        except TypeError:
            pass
    there_is = ", ".join([*(f.name for f in fields(TokenBatch)), ADVANTAGES[0]])
    raise InvalidTypeError(
        f"parameter `{parameter.name}` of `{_name_of(function)}`",
        "a name that the audit does not know",
        f"one of {there_is}, or another project's name for one of these",
        f"give it a value: functools.partial({_name_of(function)}, {parameter.name}=…)",
    )


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Parameters that can be given by name: those of ``forward`` for a module."""
    return (
        _signature(function) if isinstance(function, Hashable) else _signature.__wrapped__(function)
    )


@functools.lru_cache(maxsize=64)
def _signature(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    kinds = (
        inspect.Parameter.VAR_POSITIONAL,
        inspect.Parameter.VAR_KEYWORD,
        inspect.Parameter.POSITIONAL_ONLY,
    )
    given = inspect.signature(_called(function)).parameters
    return {name: p for name, p in given.items() if p.kind not in kinds}


def _called(function: Callable[..., Any]) -> Callable[..., Any]:
    return function.forward if isinstance(function, nn.Module) else function


def _name_of(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)


def scalar(result: Any) -> Tensor:
    """The loss in what a function returned: a scalar, or a tuple or mapping that has it first."""
    value = result
    if isinstance(value, Mapping):
        value = value.get("loss", next(iter(value.values()), None))
    if isinstance(value, tuple | list) and value:
        value = value[0]
    if not isinstance(value, Tensor) or value.numel() != 1:
        is_tensor = isinstance(value, Tensor)
        raise InvalidTypeError(
            "the result of `loss`",
            f"a tensor of shape {list(value.shape)}" if is_tensor else type(value).__name__,
            "a scalar tensor, or a tuple (loss, metrics)",
            "return the mean or the sum over the batch",
        )
    return value.reshape(())
