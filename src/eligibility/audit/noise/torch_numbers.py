"""Hand-made noise in torch: follows each tensor of random numbers through the program's operations.

A mode sees every torch function. Those that make noise attach a `Symbol` to the tensor; those
that are monotone or move elements about carry it on; comparisons and argmax are answered by the
enumerator; everything else gets the numbers themselves.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from eligibility.audit.arrays import Array
from eligibility.audit.choices import MAX_OPERATIONS, TooMuchWorkError
from eligibility.audit.noise.elements import positions_in, same_elements
from eligibility.audit.noise.numbers import Noise
from eligibility.audit.noise.numpy_numbers import NoiseArray, NoiseFloat, plain_view, settled
from eligibility.audit.noise.symbol import UNARY, Symbol, joined
from eligibility.audit.noise.torch_functions import (
    BINARY,
    CASTING,
    COMPARING,
    JOINING,
    MOVING,
    OVERWRITING,
    PASSIVE,
    SAME,
    SOURCES,
    fills_parameter,
)
from eligibility.audit.processor import made_near


class TorchNoise(TorchFunctionMode):
    """While it is active, hand-made noise of a running program is enumerated, on the processor."""

    def __init__(self, noise: Noise, running: Callable[[], bool]) -> None:
        super().__init__()
        self._noise, self._running = noise, running
        self._operations = 0
        self.exponentiated: Callable[[Tensor], None] = lambda exponent: None
        self._symbols: dict[int, tuple[Tensor, Symbol]] = {}
        # of each storage: the tensors in it that are noise, for views that were made before
        self._stored: dict[int, list[Tensor]] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self._operations += 1
        if self._operations > MAX_OPERATIONS:
            raise TooMuchWorkError(f"{MAX_OPERATIONS:,} operations of torch")
        name = getattr(func, "__name__", "")
        if name == "__get__" and not self._symbols:  # half of all calls read an attribute
            return func(*args, **(kwargs or {}))
        kwargs = made_near(kwargs or {})
        if any(map(_is_numpy_noise, args)):
            args = tuple(map(self._from_numpy, args))
            if name in ("tensor", "as_tensor", "from_numpy"):
                if kwargs.get("dtype") is None:
                    return args[0]
                return self._carried("to", Tensor.to, (args[0], kwargs["dtype"]), {})
        if fills_parameter(name, args, kwargs) and self._running():
            with self._noise.own_numbers():
                return func(*args, **kwargs)
        if name in SOURCES and self._running():
            return self._source(name, func, args, kwargs)
        if name == "exp" and args and isinstance(args[0], Tensor):
            self.exponentiated(args[0])
        if name in CASTING and self._running() and isinstance(args[0], Tensor):
            self._noise.computed_in(args[0].dtype)
        if not self._symbols or not any(True for _ in self._noisy(args, kwargs)):
            return func(*args, **kwargs)
        return self._carried(name, func, args, kwargs)

    def symbol_of(self, tensor: Any) -> Symbol | None:
        """What is known of a tensor of noise; None for another."""
        known = self._symbols.get(id(tensor))
        if known is not None:
            return known[1]
        if not isinstance(tensor, Tensor) or not self._stored or not _has_storage(tensor):
            return None
        for whole in reversed(self._stored.get(tensor.untyped_storage().data_ptr(), [])):
            positions = positions_in(tensor, whole)
            if positions is not None:
                return self._symbols[id(whole)][1].take(positions)
        return None

    def adopt(self, tensor: Tensor, symbol: Symbol) -> Tensor:
        """From now on ``tensor`` is this noise."""
        self._symbols[id(tensor)] = (tensor, symbol)
        stored = self._stored.setdefault(tensor.untyped_storage().data_ptr(), [])
        stored[:] = [other for other in stored if not same_elements(other, tensor)]
        stored.append(tensor)
        return tensor

    def release(self, tensor: Tensor) -> None:
        """What lies in this storage is not noise: parameters, or numbers that are overwritten."""
        for whole in self._stored.pop(tensor.untyped_storage().data_ptr(), []):
            self._symbols.pop(id(whole), None)

    def _forget(self, tensor: Tensor) -> None:
        """It is an ordinary tensor from now on."""
        self._symbols.pop(id(tensor), None)
        stored = self._stored.get(tensor.untyped_storage().data_ptr(), [])
        stored[:] = [other for other in stored if other is not tensor]

    def _from_numpy(self, value: Any) -> Any:
        if not _is_numpy_noise(value):
            return value
        if isinstance(value, list):
            symbol = joined([item.symbol for item in value])
            if symbol is None:
                return [settled(item) for item in value]
            placeholder = np.array([plain_view(item) for item in value])
        else:
            symbol, placeholder = value.symbol, np.array(plain_view(value))
        return self.adopt(torch.as_tensor(placeholder, dtype=torch.get_default_dtype()), symbol)

    def _noisy(self, args: Any, kwargs: Any) -> Iterator[Tensor]:
        for value in (*args, *kwargs.values()):
            for item in value if isinstance(value, (tuple, list)) else (value,):
                if self.symbol_of(item) is not None:
                    yield item

    def _source(self, name: str, func: Any, args: Any, kwargs: Any) -> Any:
        with self._noise.own_numbers():  # also what stands for numbers that are never asked
            made: Tensor = func(*args, **kwargs)
        normal, chain = SOURCES[name]
        created = self._noise.create(tuple(made.shape), normal)
        given = [
            *args[1:],
            *(kwargs[key] for key in ("mean", "std", "from", "to", "lambd") if key in kwargs),
        ]
        if name in ("uniform_", "normal_") and given:
            first, second = (*given, 1.0)[:2] if len(given) < 2 else given[:2]
            if name == "uniform_":
                second = second - first
            chain = (("mul", float(second)), ("add", float(first)))
        elif name == "exponential_" and given:
            chain = (*chain, ("mul", 1.0 / float(given[0])))
        symbol = created.chained(chain)
        if symbol is not None and _has_storage(made):
            self.adopt(made, symbol)
        return made

    def _carried(self, name: str, func: Any, args: Any, kwargs: Any) -> Any:
        bare = name.strip("_") if name not in BINARY and name not in MOVING else name
        if name == "__get__":
            return self._moved(func, args, kwargs)
        if name in PASSIVE:
            return func(*args, **kwargs)
        if name in MOVING:
            return self._moved(func, args, kwargs)
        if name in JOINING:
            return self._joined(func, args, kwargs)
        answer = NotImplemented
        if name in OVERWRITING and not any(True for _ in self._noisy(args[1:], kwargs)):
            self.release(args[0])
            return func(*args, **kwargs)
        if bare in COMPARING and len(args) == 2:
            answer = self._compared(bare, *args)
        elif name in ("argmax", "argmin", "max", "min"):
            answer = self._extreme(name, func, args, kwargs)
        elif name in ("searchsorted", "bucketize"):
            answer = self._searched(name, args, kwargs)
        elif name == "item" and not kwargs:
            answer = self._scalar(args[0])
        else:
            answer = self._computed(name, bare, func, args, kwargs)
        if answer is not NotImplemented:
            return answer
        for tensor in self._noisy(args, kwargs):  # one that is given twice is settled once
            self.settle(tensor, name)
        return func(*args, **kwargs)

    def settle(self, tensor: Tensor, what: str) -> None:
        """Make ``tensor`` an ordinary one: draw its numbers."""
        symbol = self.symbol_of(tensor)
        assert symbol is not None
        self._forget(tensor)
        values = self._noise.settle(symbol, tensor.detach().double().cpu().numpy(), f"torch.{what}")
        _overwrite(tensor, values)
        if symbol.normal:
            self._refresh(symbol)

    def _refresh(self, drawn: Symbol) -> None:
        """What was computed from the same base numbers, and may be saved for backward."""
        ids = set(drawn.ids.reshape(-1).tolist())
        for tensor, symbol in list(self._symbols.values()):
            if symbol.normal and ids & set(symbol.ids.reshape(-1).tolist()):
                _overwrite(
                    tensor, self._noise.known_values(symbol, tensor.detach().double().numpy())
                )

    def _moved(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Elements are moved about: the same happens to their positions."""
        result = func(*args, **kwargs)
        symbol = self.symbol_of(args[0])
        if symbol is None or not isinstance(result, (Tensor, tuple, list)):
            return result
        index = torch.arange(symbol.ids.size).reshape(symbol.ids.shape)
        moved = func(index, *args[1:], **kwargs)
        for made, positions in zip(_tensors(result), _tensors(moved), strict=True):
            self.adopt(made, symbol.take(positions.numpy()))
        return result

    def _joined(self, func: Any, args: Any, kwargs: Any) -> Any:
        parts = list(args[0])
        symbols = [self.symbol_of(part) for part in parts]
        whole = None
        if all(symbol is not None for symbol in symbols):
            whole = joined([symbol for symbol in symbols if symbol is not None])
        if whole is None:
            for tensor in [part for part in parts if self.symbol_of(part) is not None]:
                self.settle(tensor, "cat")
            return func(*args, **kwargs)
        starts = np.cumsum([0, *(part.numel() for part in parts)])
        indices = [
            torch.arange(part.numel()).reshape(part.shape) + int(start)
            for part, start in zip(parts, starts, strict=False)
        ]
        positions = func(indices, *args[1:], **kwargs).numpy()
        return self.adopt(func(*args, **kwargs), whole.take(positions))

    def _computed(self, name: str, bare: str, func: Any, args: Any, kwargs: Any) -> Any:
        """Monotone operations carry the symbol on."""
        symbol = self._after(bare, args, kwargs)
        if symbol is None:
            return NotImplemented
        for value in args:
            if isinstance(value, Tensor) and self.symbol_of(value) is None:
                self._noise.computed_in(value.dtype)
        result = func(*args, **kwargs)
        if isinstance(result, Tensor) and tuple(result.shape) == symbol.ids.shape:
            if name.endswith("_") and not name.startswith("__") and result is args[0]:
                self._forget(result)
            self.adopt(result, symbol)
        return result

    def _after(self, bare: str, args: Any, kwargs: Any) -> Symbol | None:
        first = self.symbol_of(args[0])
        if bare in SAME:
            return first
        if bare in UNARY and first is not None and len(args) == 1 and not kwargs:
            return first.chained(UNARY[bare])
        bound = {"minimum": "clamp_max", "maximum": "clamp_min"}.get(bare)
        if bound is not None and len(args) == 2 and not kwargs:
            second = self.symbol_of(args[1])
            if (first is None) == (second is None):
                return None
            mine, other = (first, args[1]) if first is not None else (second, args[0])
            return None if mine is None else mine.then(bound, _array(other))
        if bare in ("clamp", "clip", "clamp_min", "clamp_max") and first is not None:
            return _clamped(first, bare, args, kwargs)
        operation = BINARY.get(bare)
        if operation is None or len(args) != 2 or kwargs:
            return None
        second = self.symbol_of(args[1])
        if (first is None) == (second is None):
            return None
        if first is not None:
            return first.combined(operation, _array(args[1]))
        assert second is not None
        turned = {"sub": "rsub", "rsub": "sub", "div": "rdiv", "rdiv": "div"}
        return second.combined(turned.get(operation, operation), _array(args[0]))

    def _compared(self, bare: str, left: Any, right: Any) -> Any:
        first, second = self.symbol_of(left), self.symbol_of(right)
        if (first is None) == (second is None):
            return NotImplemented
        below = COMPARING[bare] is operator.lt
        for value in (left, right):
            if isinstance(value, Tensor) and self.symbol_of(value) is None:
                self._noise.computed_in(value.dtype)
        if first is None:
            first, right, below = second, left, not below
        assert first is not None
        under = self._noise.below(first, _array(right))
        return NotImplemented if under is None else torch.as_tensor(under if below else ~under)

    def _extreme(self, name: str, func: Any, args: Any, kwargs: Any) -> Any:
        symbol = self.symbol_of(args[0])
        dim = args[1] if len(args) > 1 else kwargs.get("dim")
        keep = bool(args[2] if len(args) > 2 else kwargs.get("keepdim", False))
        if symbol is None or isinstance(dim, Tensor) or (dim is None and "arg" not in name):
            return NotImplemented
        turned = symbol
        if dim is None:
            turned = symbol.take(np.arange(symbol.ids.size))
        elif dim % symbol.ids.ndim != symbol.ids.ndim - 1:
            positions = np.arange(symbol.ids.size).reshape(symbol.ids.shape)
            turned = symbol.take(np.moveaxis(positions, dim, -1))
        picked = self._noise.largest(turned, smallest="min" in name)
        if picked is None:
            return NotImplemented
        index = torch.as_tensor(picked)
        if dim is not None and keep:
            index = index.unsqueeze(dim)
        if name.startswith("arg"):
            return index
        wide = index if keep else index.unsqueeze(dim)
        values = args[0].gather(dim, wide)
        kind = torch.return_types.max if name == "max" else torch.return_types.min
        made = kind((values if keep else values.squeeze(dim), index))
        spent = torch.arange(symbol.ids.size).reshape(symbol.ids.shape).gather(dim, wide)
        self.adopt(made[0], symbol.take((spent if keep else spent.squeeze(dim)).numpy()))
        return made

    def _searched(self, name: str, args: Any, kwargs: Any) -> Any:
        edges, asked = args[:2] if name == "searchsorted" else (args[1], args[0])
        symbol = self.symbol_of(asked)
        if symbol is None or self.symbol_of(edges) is not None:
            return NotImplemented
        bounds = _array(edges)
        positions = np.arange(symbol.ids.size).reshape(symbol.ids.shape)
        wide = symbol.take(positions[..., None])
        under = self._noise.below(wide, bounds if bounds.ndim == 1 else bounds[..., None, :])
        return NotImplemented if under is None else torch.as_tensor((~under).sum(axis=-1))

    def _scalar(self, tensor: Tensor) -> Any:
        symbol = self.symbol_of(tensor)
        if symbol is None or symbol.ids.size != 1:
            return NotImplemented
        return NoiseFloat.made(self._noise, symbol.take(np.array(0)), float(tensor.detach()))


def _is_numpy_noise(value: Any) -> bool:
    if isinstance(value, (NoiseFloat, NoiseArray)):
        return True
    several = isinstance(value, list) and bool(value)
    return several and all(isinstance(item, NoiseFloat) for item in value)


def _has_storage(tensor: Tensor) -> bool:
    """Whether its elements lie somewhere: not those of a sparse one, nor within torch.func."""
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    return tensor.layout == torch.strided and not wrapped


def _clamped(symbol: Symbol, bare: str, args: Any, kwargs: Any) -> Symbol | None:
    if bare in ("clamp_min", "clamp_max"):
        bounds = {bare: args[1] if len(args) > 1 else next(iter(kwargs.values()))}
    else:
        low = args[1] if len(args) > 1 else kwargs.get("min")
        high = args[2] if len(args) > 2 else kwargs.get("max")
        bounds = {"clamp_min": low, "clamp_max": high}
    chain = tuple((step, _array(c)) for step, c in bounds.items() if c is not None)
    return symbol.chained(chain)


def _array(value: Any) -> Array:
    if isinstance(value, Tensor):
        value = value.detach().cpu().numpy()
    return np.asarray(value, dtype=np.float64)


def _tensors(result: Any) -> list[Tensor]:
    return [result] if isinstance(result, Tensor) else [t for t in result if isinstance(t, Tensor)]


def _overwrite(tensor: Tensor, values: Array) -> None:
    """In place and unseen by autograd: what is saved for backward changes with it."""
    fresh = torch.from_numpy(np.ascontiguousarray(values)).to(tensor.dtype)
    tensor.data.copy_(fresh.reshape(tensor.shape))
