"""A program's files as they run in the audit: changed between their text and their code."""

from __future__ import annotations

import ast
import builtins
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from eligibility.audit.patches import Patches
from eligibility.audit.user_code import is_user_file


def rewrite(patches: Patches, change: Callable[[ast.Module, str], ast.Module]) -> None:
    """From now on compile what ``change`` returns for the tree of each of the user's files."""

    def compiled(source: Any, filename: Any, mode: str, *args: Any, **options: Any) -> Any:
        file = os.fsdecode(filename)
        if mode == "exec" and not args and is_user_file(file):  # with arguments, it is only parsed
            if not isinstance(source, ast.AST):
                source = stock(source, filename, mode, ast.PyCF_ONLY_AST, dont_inherit=True)
            source = ast.fix_missing_locations(change(source, file))
        if len(args) < 2:  # else what this module has from __future__ would be the program's too
            options.setdefault("dont_inherit", True)
        return stock(source, filename, mode, *args, **options)

    is_user_file(__file__)  # it looks libraries up, once
    stock = patches.set(builtins, "compile", compiled)
    # what was compiled before is not loaded
    patches.set(sys, "pycache_prefix", str(Path(os.devnull, "none")))
