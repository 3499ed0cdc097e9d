"""What must be there before a picture is drawn: found before the work that it shows."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from eligibility.errors import InvalidValueError
from eligibility.files import check_writable
from eligibility.train.environments import missing


def check_picture(option: str, path: Path, formats: tuple[str, ...] = (".png",)) -> None:
    """Raise unless one of the ``formats`` can be drawn and written to ``path``."""
    if path.suffix not in formats:
        wanted = f"a name that ends in {', '.join(formats)}"
        raise InvalidValueError(f"`{option}`", repr(path.name), wanted, "choose another name")
    if importlib.util.find_spec("matplotlib") is None:
        raise missing("matplotlib")
    check_writable(path)
