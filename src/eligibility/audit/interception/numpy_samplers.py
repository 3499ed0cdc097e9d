"""Actions drawn by NumPy: its functions, a program's own generators, the spaces of gymnasium."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from eligibility.audit.interception.recorder import Recorder
from eligibility.audit.noise.numpy_numbers import GENERATOR, LEGACY, drawing
from eligibility.audit.patches import Patches, Standing, disguised
from eligibility.audit.trace import UNREAD

# Uniform integers and trials are enumerated when there are so few; larger ones pick minibatches.
FEW = 8
_SEED = 20250101
_NO_DRAWS = ("bit_generator", "seed", "get_state", "set_state", "spawn")


def enumerate_numpy(patches: Patches, recorder: Recorder) -> None:
    """NumPy's global functions and generators."""
    choosing = _choosing(recorder)
    for name in choosing.keys() & set(dir(np.random)):
        answer(patches, recorder, np.random, name, choosing[name])

    def become(own: Any, names: tuple[str, ...]) -> None:
        """Answer the draws of a generator, and note those that are not read."""
        for name in (name for name in dir(own) if not name.startswith("_")):
            stock = getattr(own, name)
            noted = _noted(recorder, f"`{name}` of a generator of numpy", stock)
            if name in names:
                setattr(own, name, drawing(name, stock, recorder.noise, lambda: recorder.running))
            elif name in choosing:
                setattr(own, name, while_running(recorder, choosing[name], noted))
            elif callable(stock) and name not in _NO_DRAWS:
                setattr(own, name, noted)

    class Enumerated(np.random.Generator):
        def __init__(self, bits: Any) -> None:
            super().__init__(bits)
            become(self, GENERATOR)

        def __reduce__(self) -> Any:
            return np.random.default_rng, (self.bit_generator,)

    disguised(Enumerated, np.random.Generator)

    def default_rng(seed: Any = None) -> Any:
        if isinstance(seed, np.random.Generator):
            return seed
        if isinstance(seed, np.random.RandomState):
            return Enumerated(seed._bit_generator)
        own = isinstance(seed, np.random.BitGenerator)
        return Enumerated(seed if own else np.random.PCG64(0 if seed is None else seed))

    patches.set(np.random, "default_rng", default_rng)
    stock_state: type[Any] = np.random.RandomState

    class State(np.random.RandomState, metaclass=Standing):
        def __init__(self, seed: Any = None) -> None:
            super().__init__(seed)
            become(self, LEGACY)

        def __reduce__(self) -> Any:
            return np.random.RandomState, (self._bit_generator,)

    patches.set(np.random, "RandomState", disguised(State, stock_state))


def while_running(
    recorder: Recorder, function: Callable[..., Any], stock: Callable[..., Any]
) -> Callable[..., Any]:
    """``function`` of ``stock``'s arguments once the program is running; NotImplemented: stock."""

    def answered(*args: Any, **options: Any) -> Any:
        found = function(*args, **options) if recorder.running else NotImplemented
        return stock(*args, **options) if found is NotImplemented else found

    return answered


def answer(
    patches: Patches, recorder: Recorder, owner: Any, name: str, function: Callable[..., Any]
) -> None:
    """``function`` answers for ``owner.name`` in this way."""
    patches.set(owner, name, while_running(recorder, function, getattr(owner, name)))


def _noted(recorder: Recorder, what: str, stock: Callable[..., Any]) -> Callable[..., Any]:
    """``stock``, whose numbers are not read."""

    def drawn(*args: Any, **options: Any) -> Any:
        if recorder.running:
            recorder.note(f"{UNREAD} {what}")
        return stock(*args, **options)

    return drawn


def _choosing(recorder: Recorder) -> dict[str, Callable[..., Any]]:
    """What answers the functions of these names; NotImplemented where it does not."""
    choose = recorder.choices.choose

    def choice(
        a: Any, size: Any = None, replace: bool = True, p: Any = None, *args: Any, **options: Any
    ) -> Any:
        options_list = np.arange(a) if np.ndim(a) == 0 else np.asarray(a)
        count = 1 if size is None else int(np.prod(size))
        possible = p is None and (replace or count <= len(options_list))
        rows = recorder.rows(len(options_list), size) if possible else None
        if rows is not None:
            return options_list[rows]
        if p is None and (count > 1 or len(options_list) > FEW):
            return NotImplemented
        probs = [1.0 / len(options_list)] * len(options_list) if p is None else floats(p)
        picked = [choose(probs, "other" if p is None else "action") for _ in range(count)]
        values = options_list[picked]
        if np.issubdtype(values.dtype, np.number):
            recorder.sampled([float(value) for value in values])
        return values[0] if size is None else values.reshape(size)

    def multinomial(n: Any, pvals: Any, size: Any = None) -> Any:
        if size is not None or np.ndim(n) or n > FEW or np.ndim(pvals) != 1:
            return NotImplemented
        probs = floats(pvals)
        first = len(recorder.choices.draws)
        picked = [choose(probs, "action") for _ in range(n)]
        counts = np.bincount(picked, minlength=len(probs))
        recorder.sampled_in(
            [tuple(range(first, first + n)), *[()] * (len(probs) - 1)], counts.tolist()
        )
        return counts

    def binomial(n: Any, p: Any, size: Any = None) -> Any:
        shape = np.shape(p) if size is None else tuple(np.atleast_1d(size))
        if np.ndim(n) or n > FEW:
            return NotImplemented
        units, counts = [], []
        for prob in floats(np.broadcast_to(p, shape)):
            first = len(recorder.choices.draws)
            counts.append(sum(choose([1.0 - prob, prob], "action") for _ in range(n)))
            units.append(tuple(range(first, first + n)))
        recorder.sampled_in(units, counts)
        return np.array(counts).reshape(shape)[()]

    def integers(low: Any, high: Any = None, size: Any = None, *args: Any, **options: Any) -> Any:
        first, end = (0, low) if high is None else (low, high)
        known = np.ndim(first) == 0 and first == 0 and not options.get("endpoint")
        rows = recorder.rows(end, size) if known else None
        if rows is not None:
            return rows
        past = end + 1 if options.get("endpoint") else end
        found = None if size is not None or args else whole_number(recorder, first, past)
        return NotImplemented if found is None else found

    def permutation(x: Any, axis: int = 0) -> Any:
        if np.ndim(x) == 0:
            return recorder.order(int(x))
        return np.take(x, recorder.order(np.shape(x)[axis]), axis)

    def shuffle(x: Any, axis: int = 0) -> None:
        if isinstance(x, np.ndarray):
            x[...] = permutation(x, axis)
        else:
            x[:] = [x[row] for row in recorder.order(len(x))]

    return {
        "choice": choice,
        "multinomial": multinomial,
        "binomial": binomial,
        "integers": integers,
        "randint": integers,
        "permutation": permutation,
        "shuffle": shuffle,
    }


def enumerate_spaces(patches: Patches, recorder: Recorder) -> None:
    """A few whole numbers are enumerated; what else spaces draw is the same in every run."""

    def discrete(self: Any, mask: Any = None, probability: Any = None) -> Any:
        weights = np.ones(self.n)
        for given in (mask, probability):
            weights = weights if given is None else np.asarray(given, dtype=float)
        both = mask is not None and probability is not None
        possible = len(weights) == self.n and (weights >= 0).all() and weights.any()
        if self.n > FEW or both or not possible:
            return NotImplemented
        picked = recorder.choices.choose((weights / weights.sum()).tolist(), "other")
        value = self.start + self.dtype.type(picked)
        recorder.sampled([value])
        return value

    def numbers(self: Any) -> Any:
        if self._np_random is None:  # gymnasium seeds it by the operating system
            self.seed(_SEED)
        return stock_numbers(self)

    stock_numbers = spaces.Space.np_random.fget  # type: ignore[attr-defined]  # of the property
    patches.set(spaces.Space, "np_random", property(numbers))
    for kind in (spaces.Box, spaces.Discrete, spaces.MultiBinary, spaces.MultiDiscrete):
        noted = _noted(recorder, f"`sample` of a {kind.__name__}", kind.sample)
        patches.set(kind, "sample", noted)
    answer(patches, recorder, spaces.Discrete, "sample", discrete)


def whole_number(recorder: Recorder, low: Any, end: Any) -> int | None:
    """One of the whole numbers from ``low`` to ``end``, without it; None if they are not few."""
    if not recorder.follows_noise or np.ndim(low) or np.ndim(end) or not 0 < end - low <= FEW:
        return None
    count = int(end - low)
    value = int(low) + recorder.choices.choose([1.0 / count] * count, "other")
    recorder.sampled([value])
    return value


def floats(values: Any) -> list[float]:
    """The numbers in an array or a tensor of any shape."""
    detached = values.detach() if isinstance(values, torch.Tensor) else values
    return [float(value) for value in np.asarray(detached, dtype=np.float64).reshape(-1)]
