"""Running means and deviations, by which programs divide observations and rewards, stay 0 and 1.

They follow every step so far, so that what is seen of a state, and what a step earns, would be
another number on every path. Moments that start elsewhere are left alone.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np

from eligibility.audit.interception.recorder import Recorder
from eligibility.audit.patches import Patches

# The names that they have in OpenAI's baselines and in modular_rl, and in nearly every copy since.
_MOMENTS, _FILTER = "RunningMeanStd", "ZFilter"
_LIBRARIES = ("gymnasium.wrappers.utils", "stable_baselines3.common.running_mean_std")


def hold_running_moments(patches: Patches, recorder: Recorder) -> None:
    """Of the classes that are known already, and of each that the program makes."""

    def hold(made: type[Any]) -> None:
        name, stays = _HELD[made.__name__]
        stock = vars(made).get(name)
        if not isinstance(stock, FunctionType):
            return

        def unchanged(self: Any, *args: Any, **options: Any) -> Any:
            if not stays(self):
                return stock(self, *args, **options)
            recorder.note("running-normalisation")
            return next(iter((*args, *options.values())), None)  # what a filter is given

        patches.set(made, name, unchanged)

    def build(function: Any, name: str, *bases: Any, **options: Any) -> Any:
        made = stock_build(function, name, *bases, **options)
        if name in _HELD and isinstance(made, type):
            hold(made)
        return made

    stock_build = patches.set(builtins, "__build_class__", build)
    for module in _LIBRARIES:
        if module in sys.modules:
            hold(getattr(sys.modules[module], _MOMENTS))


def _stay(moments: Any) -> bool:
    """Whether they are 0 and 1, or are so from now on as nothing was counted yet."""
    mean: Any = getattr(moments, "mean", None)
    if not _is_all(mean, 0.0):
        return False
    if getattr(moments, "n", None) == 0 and _is_all(getattr(moments, "std", None), 0.0):
        moments.std = mean + 1.0
    return any(_is_all(getattr(moments, name, None), 1.0) for name in ("var", "std"))


def _is_all(numbers: Any, number: float) -> bool:
    try:
        return bool((np.asarray(numbers, dtype=float) == number).all())
    except (TypeError, ValueError, RuntimeError):  # no numbers, or none that may be looked at
        return False


# Of the classes of each name: the method that takes a number in, and when it is to leave it alone.
_HELD: dict[str, tuple[str, Callable[[Any], bool]]] = {
    _MOMENTS: ("update", _stay),
    _FILTER: ("__call__", lambda moments: True),
}
