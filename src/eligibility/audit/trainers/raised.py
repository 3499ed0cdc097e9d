"""Where in the user's code an error was raised."""

from __future__ import annotations

import traceback

from eligibility.audit.user_code import is_user_file


def place_of(error: BaseException) -> tuple[str, int]:
    """File and line of the innermost frame that is the user's."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if is_user_file(f.filename)]
    return (frames[-1].filename, frames[-1].lineno or 0) if frames else ("", 0)
