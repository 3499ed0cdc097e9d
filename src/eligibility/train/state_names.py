"""Tensors by name, in parts: ``part.name``."""

from __future__ import annotations

from torch import Tensor


def named(part: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors under ``part.name`` each."""
    return {f"{part}.{name}": tensor for name, tensor in tensors.items()}


def part_of(tensors: dict[str, Tensor], part: str) -> dict[str, Tensor]:
    """The tensors of a part, under their names in it."""
    prefix = f"{part}."
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }
