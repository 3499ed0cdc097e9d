"""What a program asks of distributions: which log-probability belongs to which parameters.

A distribution forgets what it was given (``Categorical`` keeps probs / Σ probs), so the tensors are
noted when it is constructed, and each result when it is computed.
"""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.distributions import Distribution

from eligibility.rules.registry import supported_distributions


@dataclass(frozen=True, eq=False)
class Call:
    """One question to a distribution, and the answer."""

    kind: Literal["log_prob", "entropy", "divergence"]  # what was asked for
    dist: Distribution  # the distribution; of a divergence, the first one
    # The tensors that it was constructed with, by the names of its parameters.
    given: Mapping[str, Tensor]
    value: Tensor | None  # the outcome whose log-probability was asked for; else None
    result: Tensor
    # The outcome itself, where it has a graph: nothing cut it off from what it was computed from;
    # else None.
    attached: Tensor | None = None


# What holds a distribution inside another one, by the argument of its constructor -> the prefix
# that the names of its parameters get there.
_INNER = {
    "base_distribution": "",
    "mixture_distribution": "mixture_distribution.",
    "component_distribution": "component_distribution.",
}


class Calls:
    """Collects `Call` while it watches."""

    def __init__(self, is_wanted: Callable[[], bool]) -> None:
        self.found: list[Call] = []
        self._is_wanted = is_wanted
        self._given: weakref.WeakKeyDictionary[Any, dict[str, Tensor]] = weakref.WeakKeyDictionary()
        self._depth = 0

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Call through the methods of torch's distributions, and note what they answer."""
        with ExitStack() as stack:
            for cls in supported_distributions():
                for name in vars(cls).keys() & {"__init__", "log_prob", "entropy"}:
                    stack.enter_context(_replaced(cls, name, self._wrapped(name)))
            for module in (torch.distributions, torch.distributions.kl):
                stack.enter_context(_replaced(module, "kl_divergence", self._noting("divergence")))
            yield

    def _wrapped(self, name: str) -> Callable[[Any], Any]:
        return self._constructing if name == "__init__" else self._noting(name)

    def _constructing(self, construct: Any) -> Any:
        signature = inspect.signature(construct)

        @functools.wraps(construct)
        def constructed(dist: Any, *args: Any, **options: Any) -> None:
            construct(dist, *args, **options)
            tensors: dict[str, Tensor] = {}
            for name, argument in signature.bind(dist, *args, **options).arguments.items():
                if isinstance(argument, Tensor):
                    tensors[name] = argument
                elif name in _INNER and isinstance(argument, Distribution):
                    inner = self._given.get(argument, {})
                    tensors |= {_INNER[name] + key: tensor for key, tensor in inner.items()}
            self._given[dist] = {**self._given.get(dist, {}), **tensors}

        return constructed

    def _noting(self, kind: Any) -> Callable[[Any], Any]:
        def wrap(ask: Any) -> Any:
            @functools.wraps(ask)
            def asked(dist: Any, *args: Any, **options: Any) -> Any:
                self._depth += 1
                try:
                    result = ask(dist, *args, **options)
                finally:
                    self._depth -= 1
                is_outermost = self._depth == 0 and self._is_wanted()
                if is_outermost and isinstance(result, Tensor) and result.grad_fn is not None:
                    value = next((item for item in (*args, *options.values())), None)
                    outcome = value.detach() if isinstance(value, Tensor) else None
                    attached = value if isinstance(value, Tensor) and value.requires_grad else None
                    given = self._given.get(dist, {})
                    self.found.append(Call(kind, dist, given, outcome, result, attached))
                return result

            return asked

        return wrap


@contextmanager
def _replaced(owner: Any, name: str, wrap: Callable[[Any], Any]) -> Iterator[None]:
    """``owner.name`` as ``wrap`` makes it, until the end of the block."""
    original = vars(owner)[name]
    setattr(owner, name, wrap(original))
    try:
        yield
    finally:
        setattr(owner, name, original)
