"""Hand-made noise in NumPy and in plain Python: numbers that compare by asking the enumerator.

``np.random.rand() < p``, ``np.searchsorted(np.cumsum(p), random.random())``,
``np.argmax(logits + np.random.gumbel(size=n))`` and ``mu + sigma * np.random.randn()`` are followed
as in torch.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partialmethod
from typing import Any

import numpy as np
import torch

from eligibility.audit.arrays import Array
from eligibility.audit.noise.numbers import Noise
from eligibility.audit.noise.symbol import EXPONENTIAL, GUMBEL, UNARY, Chain, Symbol
from eligibility.audit.patches import Patches

_COMPARISONS = {
    np.less: True, np.less_equal: True, np.greater: False, np.greater_equal: False,
}  # fmt: skip
# What each means with noise on its left, and with noise on its right.
_BINARY = {
    np.add: ("add", "add"), np.multiply: ("mul", "mul"), np.subtract: ("sub", "rsub"),
    np.true_divide: ("div", "rdiv"),
}  # fmt: skip


class _Noisy:
    """What scalars and arrays of noise have in common."""

    noise: Noise
    symbol: Symbol

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if method == "__call__" and not options:
            answer = _applied(ufunc, inputs)
            if answer is not NotImplemented:
                return answer
        plain = [settled(value) for value in inputs]
        if "out" in options:
            options["out"] = tuple(settled(value) for value in options["out"])
        return getattr(ufunc, method)(*plain, **options)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        name = func.__name__
        if name == "searchsorted" and isinstance(args[1], _Noisy):
            side = args[1]
            wide = side.symbol.take(np.arange(side.symbol.ids.size).reshape(-1, 1))
            under = side.noise.below(wide, np.asarray(settled(args[0]))[None, :])
            if under is not None:
                count = (~under).sum(axis=1).reshape(side.symbol.ids.shape)
                return count if count.ndim else count[()]
        if name in ("argmax", "argmin") and isinstance(args[0], _Noisy):
            axis = args[1] if len(args) > 1 else kwargs.get("axis")
            return _extreme(args[0], axis, smallest=name == "argmin")
        plain = [_settled_inside(value) for value in args]
        return func(*plain, **{key: _settled_inside(value) for key, value in kwargs.items()})


class NoiseFloat(np.float64, _Noisy):  # type: ignore[misc]  # the stubs of its two numbers differ
    """A random number that is not drawn yet.

    The NumPy type comes first among its bases: torch reads the number at a fixed place.
    """

    @classmethod
    def made(cls, noise: Noise, symbol: Symbol, placeholder: float) -> NoiseFloat:
        """One, that reads ``placeholder`` where Python does not ask."""
        number = cls(placeholder)
        number.noise, number.symbol = noise, symbol
        return number

    def _binary(self, ufunc: Any, other: Any, turned: bool = False) -> Any:
        if isinstance(other, (torch.Tensor, list, tuple, str)):
            return NotImplemented
        left, right = (other, self) if turned else (self, other)
        return self.__array_ufunc__(ufunc, "__call__", left, right)

    def __neg__(self) -> Any:
        return self.__array_ufunc__(np.negative, "__call__", self)

    def __float__(self) -> float:
        return float(settled(self))

    def __int__(self) -> int:
        return int(_floored(self) if _is_positive(self) else settled(self))

    __trunc__ = __int__

    def __floor__(self) -> int:
        return int(_floored(self))

    def __ceil__(self) -> int:
        return -int(_floored(-self))

    def item(self, *args: Any) -> Any:
        return self

    def __hash__(self) -> int:
        return id(self)


for _name, _ufunc in {
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "add": np.add,
    "sub": np.subtract, "mul": np.multiply, "truediv": np.true_divide,
}.items():  # fmt: skip
    setattr(NoiseFloat, f"__{_name}__", partialmethod(NoiseFloat._binary, _ufunc))
    if f"__r{_name}__" in vars(np.float64):
        turned = partialmethod(NoiseFloat._binary, _ufunc, turned=True)
        setattr(NoiseFloat, f"__r{_name}__", turned)


def _plainly(name: str) -> Callable[..., Any]:
    def method(self: NoiseFloat, *args: Any) -> Any:
        return getattr(np.float64(settled(self)), name)(*map(settled, args))

    return method


for _name in (
    "__eq__", "__ne__", "__pow__", "__rpow__", "__mod__", "__rmod__", "__floordiv__",
    "__rfloordiv__", "__divmod__", "__abs__", "__round__", "__bool__", "__repr__", "__str__",
    "__format__",
):  # fmt: skip
    if hasattr(np.float64, _name):
        setattr(NoiseFloat, _name, _plainly(_name))


class NoiseArray(_Noisy, np.ndarray[Any, Any]):
    """An array of random numbers that are not drawn yet."""

    @classmethod
    def made(cls, noise: Noise, symbol: Symbol, placeholder: Array) -> NoiseArray:
        """One, that reads ``placeholder`` where NumPy does not ask."""
        array = np.array(placeholder, dtype=np.float64).view(cls)
        array.noise, array.symbol = noise, symbol
        return array

    def __array_finalize__(self, parent: Any) -> None:
        if isinstance(parent, NoiseArray) and hasattr(parent, "noise"):
            self.noise = parent.noise

    def _moved(self, move: Callable[[Any], Any]) -> Any:
        positions = move(np.arange(self.size).reshape(self.shape))
        return _wrapped(self.noise, self.symbol.take(positions), move(plain_view(self)))

    def __getitem__(self, key: Any) -> Any:
        return self._moved(lambda array: array[key])

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))

    def reshape(self, *shape: Any, **options: Any) -> Any:
        return self._moved(lambda array: array.reshape(*shape, **options))

    def copy(self, order: Any = "C") -> Any:
        return self._moved(lambda array: array.copy())

    def astype(self, dtype: Any, *args: Any, **options: Any) -> Any:
        if np.issubdtype(dtype, np.floating):
            return self._moved(lambda array: array)
        whole = np.issubdtype(dtype, np.integer) and _is_positive(self)
        return (_floored(self) if whole else settled(self)).astype(dtype, *args, **options)

    def item(self, *args: Any) -> Any:
        return self.reshape(-1)[args[0] if args else 0]

    def tolist(self) -> Any:
        return settled(self).tolist()

    def argmax(self, axis: Any = None, *args: Any, **options: Any) -> Any:
        return _extreme(self, axis, smallest=False)

    def argmin(self, axis: Any = None, *args: Any, **options: Any) -> Any:
        return _extreme(self, axis, smallest=True)

    def __float__(self) -> float:
        return float(settled(self))

    def __int__(self) -> int:
        return int(settled(self))


def settled(value: Any) -> Any:
    """The plain numbers of noise; anything else as it is."""
    if not isinstance(value, _Noisy):
        return value
    placeholder = plain_view(value)
    drawn = value.noise.settle(value.symbol, placeholder, "numpy")
    return drawn if drawn.ndim else np.float64(drawn)


def _settled_inside(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(settled(item) for item in value)
    return settled(value)


def plain_view(value: Any) -> Any:
    """What noise reads as, without asking for it."""
    if isinstance(value, np.ndarray):
        return value.view(np.ndarray)
    return np.float64(np.float64.__float__(value))


def _wrapped(noise: Noise, symbol: Symbol, placeholder: Any) -> Any:
    if symbol.ids.ndim == 0:
        return NoiseFloat.made(noise, symbol, float(placeholder))
    return NoiseArray.made(noise, symbol, placeholder)


def _applied(ufunc: Any, inputs: Any) -> Any:
    """A comparison or a monotone operation; NotImplemented for anything else."""
    noisy = [value for value in inputs if isinstance(value, _Noisy)]
    if len(noisy) != 1:
        return NotImplemented
    (mine,) = noisy
    if ufunc in (np.floor, np.ceil):
        return _floored(mine) if ufunc is np.floor else -_floored(np.negative(mine))
    if ufunc.__name__ in UNARY:
        return _carried(mine, mine.symbol.chained(UNARY[ufunc.__name__]), ufunc, inputs)
    if len(inputs) != 2:
        return NotImplemented
    first = inputs[0] is mine
    other = np.asarray(inputs[1] if first else inputs[0], dtype=np.float64)
    if ufunc in _COMPARISONS:
        under = mine.noise.below(mine.symbol, other)
        if under is None:
            return NotImplemented
        answer = under if _COMPARISONS[ufunc] is first else ~under
        return answer if answer.ndim else np.bool_(answer)
    if ufunc not in _BINARY:
        return NotImplemented
    return _carried(mine, mine.symbol.combined(_BINARY[ufunc][not first], other), ufunc, inputs)


def _carried(mine: Any, symbol: Symbol | None, ufunc: Any, inputs: Any) -> Any:
    if symbol is None:
        return NotImplemented
    plain = [plain_view(value) if isinstance(value, _Noisy) else value for value in inputs]
    return _wrapped(mine.noise, symbol, ufunc(*plain))


def _floored(value: Any) -> Any:
    """The whole numbers below uniform noise, one choice each if they are few."""
    floors = value.noise.floor(value.symbol) if isinstance(value, _Noisy) else None
    if floors is None:
        return np.floor(settled(value))
    return floors if floors.ndim else np.float64(floors)


def _is_positive(value: Any) -> bool:
    """Whether noise is nowhere below 0, where to cut a number off is to round it down."""
    lowest = [value.symbol.quantiles(np.full(value.symbol.ids.shape, end)) for end in (0.0, 1.0)]
    return bool(np.min(lowest) >= 0.0)


def _extreme(array: Any, axis: Any, smallest: bool) -> Any:
    positions = np.arange(array.symbol.ids.size).reshape(array.symbol.ids.shape)
    moved = positions.reshape(-1) if axis is None else np.moveaxis(positions, axis, -1)
    picked = array.noise.largest(array.symbol.take(moved), smallest)
    if picked is None:
        plain = settled(array)
        return (np.argmin if smallest else np.argmax)(plain, axis=axis)
    return picked if picked.ndim else picked[()]


# Functions that draw: whether the base number is normal, what is done to it, and the parameters
# before the size, of which there are none, or a location and a scale.
_DRAWING: dict[str, tuple[bool, Chain, tuple[float, float] | None]] = {
    "random": (False, (), None),
    "random_sample": (False, (), None),
    "ranf": (False, (), None),
    "sample": (False, (), None),
    "rand": (False, (), None),
    "randn": (True, (), None),
    "standard_normal": (True, (), None),
    "standard_exponential": (False, EXPONENTIAL, None),
    "uniform": (False, (), (0.0, 1.0)),
    "normal": (True, (), (0.0, 1.0)),
    "gumbel": (False, GUMBEL, (0.0, 1.0)),
    "gauss": (True, (), (0.0, 1.0)),
    "normalvariate": (True, (), (0.0, 1.0)),
}
_FIRST, _SECOND = ("loc", "low", "mu", "a"), ("scale", "high", "sigma", "b")
GENERATOR = ("random", "uniform", "normal", "standard_normal", "standard_exponential", "gumbel")
LEGACY = (*GENERATOR, "random_sample", "rand", "randn")
_GLOBAL = (*LEGACY, "ranf", "sample")
PYTHON = ("random", "uniform", "gauss", "normalvariate")


def follow_noise(patches: Patches, noise: Noise, running: Callable[[], bool]) -> None:
    """The functions of ``numpy.random`` and ``random`` that make uniform and normal numbers."""
    for owner, names in ((np.random, _GLOBAL), (random, PYTHON)):
        for name in names:
            stock = getattr(owner, name)
            patches.set(owner, name, drawing(name, stock, noise, running))


def drawing(
    name: str, stock: Callable[..., Any], noise: Noise, running: Callable[[], bool]
) -> Callable[..., Any]:
    """The function ``name`` with noise for an answer, once the program is running."""
    normal, chain, parameters = _DRAWING[name]

    def draw(*args: Any, **options: Any) -> Any:
        plain = {key: settled(value) for key, value in options.items()}
        arguments = [settled(value) for value in args]
        with noise.own_numbers():
            made = stock(*arguments, **plain)
        if not running():
            return made
        steps = chain
        if parameters is not None:
            given: list[Any] = [*args[:2], *parameters[len(args[:2]) :]]
            first = next((plain[key] for key in _FIRST if key in plain), given[0])
            second = next((plain[key] for key in _SECOND if key in plain), given[1])
            width = np.subtract(second, first) if name == "uniform" else second
            steps = (*chain, ("mul", np.broadcast_to(width, np.shape(made))), ("add", first))
        symbol = noise.create(np.shape(made), normal).chained(steps)
        return made if symbol is None else _wrapped(noise, symbol, made)

    return draw
