"""torch's compiler, put off: an audit compiles nothing, and loading it takes longer than a run."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

_NAME = "torch._dynamo"


class _Postponed(ModuleType):
    """Stands for ``torch._dynamo``, which optimizers import to tell it to look away.

    What optimizers ask of it is answered here. Whoever asks for anything else gets the real one.
    """

    def graph_break(self, *args: Any, **options: Any) -> None:
        """Nothing is compiled: there is no graph to break."""

    def disable(self, function: Any = None, *args: Any, **options: Any) -> Any:
        """The function itself."""
        return function if function is not None else lambda inner: inner

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__path__":
            raise AttributeError(name)
        if sys.modules.get(_NAME) is self:
            del sys.modules[_NAME]
        return getattr(importlib.import_module(_NAME), name)


def postpone_compiler() -> None:
    """In a process of the audit's own: leave ``torch._dynamo`` out until something needs it."""
    import torch

    if _NAME not in sys.modules:
        stand_in = _Postponed(_NAME)
        sys.modules[_NAME] = stand_in
        vars(torch)["_dynamo"] = stand_in
