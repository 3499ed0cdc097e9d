"""What has come through a pipe as JSON, checked and made immutable."""

from __future__ import annotations

from typing import Any


def frozen(value: Any) -> Any:
    """Tuples in place of lists; raises ``TypeError`` for anything but these, numbers and texts."""
    if isinstance(value, list):
        return tuple(frozen(item) for item in value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"{type(value).__name__} in a record")
