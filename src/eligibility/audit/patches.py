"""Attributes of other people's modules, replaced for a while and put back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
