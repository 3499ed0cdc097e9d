"""Docstrings here say "Example:"; Griffe's parser knows the section as "Examples:"."""

from __future__ import annotations

import re
from typing import Any

import griffe


class SectionNames(griffe.Extension):
    """Rename the section before it is parsed."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = re.sub(
                r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE
            )
