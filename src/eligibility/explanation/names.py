"""What the reader calls each tensor: the variables of the frame that asks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from eligibility.explanation.graph import Node


class Names:
    """What tensors are called that some variables lead to by a short name.

    ``places`` are those in a graph that they hold the value of, each with name and tensor.
    """

    def __init__(self, variables: Mapping[str, Any]) -> None:
        self._by_id: dict[int, str] = {}
        self.places: dict[tuple[Node, int], tuple[str, Tensor]] = {}
        for name, tensor in _named(variables):
            self._by_id.setdefault(id(tensor), name)
            if tensor.grad_fn is not None:
                self.places.setdefault((tensor.grad_fn, tensor.output_nr), (name, tensor))

    def of(self, tensor: Tensor) -> str | None:
        """The name of ``tensor``, or None if it has none."""
        return self._by_id.get(id(tensor))

    def unique(self, tensors: Sequence[Tensor]) -> list[str]:
        """A name for each: its own, or "leaf1", "leaf2", … in order."""
        numbers = count(1)
        return [self.of(tensor) or f"leaf{next(numbers)}" for tensor in tensors]


def names_in(frame: FrameType) -> Names:
    """The tensors that ``frame`` can reach by a short name, its locals before its globals."""
    return Names({**frame.f_globals, **frame.f_locals})


def _named(variables: Mapping[str, Any]) -> Iterator[tuple[str, Tensor]]:
    visible = {name: value for name, value in variables.items() if not name.startswith("_")}
    for name, value in visible.items():
        if isinstance(value, Tensor):
            yield name, value
    for name, value in visible.items():
        if isinstance(value, torch.nn.Module):
            yield from _parameters(name, value)
        elif isinstance(value, (list, tuple)):
            yield from ((f"{name}[{i}]", t) for i, t in enumerate(value) if isinstance(t, Tensor))
        elif isinstance(value, dict):
            yield from ((f"{name}[{k!r}]", t) for k, t in value.items() if isinstance(t, Tensor))
        elif name == "self":
            yield from _attributes(value)


def _attributes(value: Any) -> Iterator[tuple[str, Tensor]]:
    """The tensors and the modules' parameters that an object holds."""
    for name, attribute in getattr(value, "__dict__", {}).items():
        if isinstance(attribute, Tensor):
            yield f"self.{name}", attribute
        elif isinstance(attribute, torch.nn.Module):
            yield from _parameters(f"self.{name}", attribute)


def _parameters(name: str, module: torch.nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from ((f"{name}.{inner}", tensor) for inner, tensor in module.named_parameters())
