"""Tokens that a program draws by adding noise and taking the maximum: from which logits.

The largest of z + g, with independent Gumbel noise g = −log(−log u), is a draw from the softmax of
z; so is that of p / e, with exponential noise e = −log u, from p. Which noise a program has made of
uniform or exponential numbers is told by its values.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_UNIFORM = {torch.rand, torch.rand_like, torch.Tensor.uniform_}
_EXPONENTIAL = {torch.Tensor.exponential_}
_SUMS = {"add", "__add__", "__radd__", "add_", "__iadd__"}
_DIFFERENCES = {"sub", "__sub__", "__rsub__", "sub_", "__isub__"}
_QUOTIENTS = {"div", "true_divide", "__truediv__", "div_", "__itruediv__"}
_CLOSE = 1e-5  # a program adds as much to numbers that it takes the logarithm of
_FEWEST = 3  # numbers that can tell a noise from another


class Noise:
    """Follows random numbers through a program's operations."""

    def __init__(self) -> None:
        self._made_of: dict[int, Tensor] = {}  # uniform numbers, by the identity of what is made
        self._logits: dict[int, Tensor] = {}
        self._kept: list[Tensor] = []  # so that no identity is given twice

    def met(self, func: Any, args: Any, result: Any) -> None:
        """A call of torch's that was made."""
        if not isinstance(result, Tensor):
            return
        plain = result.detach()
        if func in _UNIFORM:
            self._note(self._made_of, result, plain.clone())
        elif func in _EXPONENTIAL:
            self._note(self._made_of, result, (-plain).exp())
        elif self._made_of:
            self._follow(getattr(func, "__name__", ""), args, result)

    def logits(self, perturbed: Any) -> Tensor | None:
        """The logits whose softmax the maximum's place is drawn from; None: it is no draw."""
        return self._logits.get(id(perturbed))

    def _follow(self, name: str, args: Any, result: Tensor) -> None:
        tensors = [each for each in args if isinstance(each, Tensor)]
        noisy = [each for each in tensors if id(each) in self._made_of]
        others = [each for each in tensors if id(each) not in self._made_of and each.numel() > 1]
        if len(noisy) != 1:
            return
        uniform = self._made_of[id(noisy[0])]
        if result.shape != uniform.shape:
            return
        self._note(self._made_of, result, uniform)
        if len(others) == 1 and others[0].shape == uniform.shape:
            first = noisy[0] is args[0]
            found = _drawn_from(name, others[0].detach(), noisy[0].detach(), uniform, first)
            if found is not None:
                self._note(self._logits, result, found)

    def _note(self, where: dict[int, Tensor], made: Tensor, value: Tensor) -> None:
        where[id(made)] = value
        self._kept.append(made)


def _drawn_from(
    name: str, other: Tensor, noise: Tensor, uniform: Tensor, noise_first: bool
) -> Tensor | None:
    """The logits that the noise is added to, divided by its scale."""
    exponential = -uniform.log()
    gumbel = -exponential.log()
    if name in _QUOTIENTS and not noise_first:
        scale = _scale(noise, exponential)
        return other.log() if scale else None
    if name in _SUMS:
        scale = _scale(noise, gumbel)
    elif name in _DIFFERENCES and not noise_first:
        scale = _scale(-noise, gumbel)
    else:
        return None
    return other / scale if scale else None


def _scale(noise: Tensor, standard: Tensor) -> float:
    """The c for which the noise is c times the standard one; 0 if there is none."""
    ratio = (noise / standard).flatten()
    middle = float(ratio.median())
    alike = ratio.numel() >= _FEWEST and middle > 0 and bool(torch.isfinite(ratio).all())
    return middle if alike and float((ratio / middle - 1).abs().max()) < _CLOSE else 0.0
