"""The one context in which a program's randomness, environments and optimizers are ours.

Everything is put back when the context ends, whatever ended it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from eligibility.audit import environments, learning, precision, samplers, surroundings
from eligibility.audit.recorder import Recorder

_MISSING = object()


class Patches:
    """Attributes replaced for a while."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def set(self, owner: Any, name: str, value: Any) -> Any:
        """Replace ``owner.name`` and return what it was, as reached through ``owner``."""
        reached = getattr(owner, name, None)
        own = vars(owner).get(name, _MISSING)
        setattr(owner, name, value)
        self._undo.append(lambda: _restore(owner, name, own))
        return reached

    def later(self, undo: Callable[[], Any]) -> None:
        """Call ``undo`` at the end as well."""
        self._undo.append(undo)

    def restore(self) -> None:
        """Put everything back, the last first."""
        while self._undo:
            self._undo.pop()()


def _restore(owner: Any, name: str, own: Any) -> None:
    if own is _MISSING:
        delattr(owner, name)
    else:
        setattr(owner, name, own)


@contextmanager
def intercepted(recorder: Recorder, *, four_tuple: bool = False) -> Iterator[None]:
    """Within it, the program's draws, environments and optimizers report to ``recorder``.

    Args:
        recorder: Keeps the books of the run.
        four_tuple: Environments speak the interface of gym before 0.26.
    """
    patches = Patches()
    try:
        if recorder.job.raised:
            precision.raise_precision(patches)
        samplers.enumerate_torch(patches, recorder)
        samplers.enumerate_python(patches, recorder)
        environments.replace_environments(patches, recorder, four_tuple)
        learning.watch_optimizers(patches, recorder)
        surroundings.quieten(patches)
        yield
    finally:
        patches.restore()
