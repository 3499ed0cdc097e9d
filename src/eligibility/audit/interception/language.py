"""Notices that a program trains a language model, which another probe answers for."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from eligibility.audit.user_code import is_user_file

# A program that imports it trains a language model; one that imports `datasets` only reads data.
_LIBRARY = "trl"


class LanguageProgram(BaseException):
    """The program trains a language model."""


class _Finder:
    """Ends the run where the installed library that trains language models is imported."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == _LIBRARY:
            found = PathFinder.find_spec(name, path)
            origin = Path((found and found.origin) or self._folder)
            own = origin.is_relative_to(self._folder) and is_user_file(str(origin))
            if found is not None and not own:
                raise LanguageProgram
        return None


def imports_trainers(script: Path) -> bool:
    """Whether a script imports the installed trainers at its top level: any run ends there."""
    with suppress(SyntaxError, ValueError, OSError):  # whoever runs it says so
        for node in ast.parse(script.read_bytes()).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            if any(name.partition(".")[0] == _LIBRARY for name in names):
                own = PathFinder.find_spec(_LIBRARY, [str(script.parent)])
                return own is None and PathFinder.find_spec(_LIBRARY) is not None
    return False


def notice_language(script: Path) -> None:
    """From now on, end the run with `LanguageProgram` where the program turns out to be one.

    Args:
        script: The program; modules in its folder are its own, whatever they are called.
    """
    finder: Any = _Finder(script.parent)
    sys.meta_path.insert(0, finder)
    loaded = sys.modules.get("transformers")
    if loaded is not None:
        _watch(loaded)


def _watch(transformers: Any) -> None:
    """Loading a model by name, or `generate`, where the library is there already."""

    def stop(*args: Any, **options: Any) -> Any:
        raise LanguageProgram

    owners: list[tuple[Any, str, Callable[[Any], Any]]] = [
        *((owner, "from_pretrained", classmethod) for owner in model_loaders()),
        (transformers.PreTrainedModel, "from_pretrained", classmethod),
        (transformers.AutoTokenizer, "from_pretrained", classmethod),
        (transformers.PreTrainedTokenizerBase, "from_pretrained", classmethod),
        (transformers.GenerationMixin, "generate", lambda function: function),
    ]
    for owner, name, kind in owners:
        setattr(owner, name, kind(stop))


def model_loaders() -> list[Any]:
    """The classes of transformers that load a model by name, each with a method of its own."""
    module = importlib.import_module("transformers.models.auto.modeling_auto")
    base = module._BaseAutoModelClass
    owners = [each for each in vars(module).values() if isinstance(each, type)]
    own = [o for o in owners if issubclass(o, base) and "from_pretrained" in vars(o)]
    return list(dict.fromkeys([base, *own]))
