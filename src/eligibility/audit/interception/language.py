"""Notices that a program trains a language model, which another probe answers for."""

from __future__ import annotations

import ast
import importlib
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec, PathFinder
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

from eligibility.audit.user_code import imported_by, is_user_file
from eligibility.sandbox.workspace import repository_root

# A program that imports it trains a language model; one that imports `datasets` only reads data.
_LIBRARY = "trl"
_ENGINES = ("vllm", "deepspeed")  # whose place the probe takes, whether they are installed or not
_LOADERS = ("transformers", "datasets")
_LOADS_MODELS = re.compile(r"^\s*(from|import) transformers\b", re.M)
_FILES = 500  # of a program that are looked at
# What torchrun tells its processes; the probe of language models does so, too.
_LAUNCHED = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


class LanguageProgram(BaseException):
    """The program trains a language model."""


class _Finder:
    """Ends the run where the library that trains language models, or an engine, is imported.

    Of the libraries that load models and data it notes that they are there.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in (_LIBRARY, *_ENGINES, *_LOADERS):
            return None
        found = PathFinder.find_spec(name, path)
        if found is None and name in _ENGINES:
            raise LanguageProgram
        origin = Path((found and found.origin) or self._folder)
        if found is None or (origin.is_relative_to(self._folder) and is_user_file(str(origin))):
            return None
        if name not in _LOADERS:
            raise LanguageProgram
        loader: Any = found.loader
        stock = loader.exec_module

        def load(module: ModuleType) -> None:
            stock(module)
            if hasattr(module, "load_dataset"):
                vars(module)["load_dataset"] = self._reading(module.load_dataset)
            _watch()

        loader.exec_module = load
        return found

    def _reading(self, stock: Callable[..., Any]) -> Callable[..., Any]:
        """What loads data, which may be for a model that is loaded after them."""

        def load_dataset(*args: Any, **options: Any) -> Any:
            try:
                return stock(*args, **options)
            except OSError:  # there is no network
                root = repository_root(self._folder) or self._folder
                own = islice(root.rglob("*.py"), _FILES)
                if any(_LOADS_MODELS.search(p.read_text("utf-8", "replace")) for p in own):
                    raise LanguageProgram from None
                raise

        return load_dataset


def imports_trainers(script: Path) -> bool:
    """Whether a script imports the installed trainers at its top level: any run ends there."""
    with suppress(SyntaxError, ValueError, OSError):  # the run reports it
        for node in ast.parse(script.read_bytes()).body:
            if any(name.partition(".")[0] == _LIBRARY for name in imported_by(node)):
                own = PathFinder.find_spec(_LIBRARY, [str(script.parent)])
                return own is None and PathFinder.find_spec(_LIBRARY) is not None
    return False


def misses_launcher(error: BaseException) -> bool:
    """Whether an error ends a program of language models because torchrun did not start it."""
    missing = isinstance(error, KeyError) and str(error) in map(repr, _LAUNCHED)
    return missing and "transformers" in sys.modules


def notice_language(script: Path) -> None:
    """From now on, end the run of this script with `LanguageProgram` if it is one.

    Modules in its folder are its own, whatever they are called.
    """
    finder: Any = _Finder(script.parent)
    sys.meta_path.insert(0, finder)
    _watch()


def _watch() -> None:
    """Where the library of models is there: loading one, or data, by name, and `generate`."""
    transformers: Any = sys.modules.get("transformers")
    if transformers is None:
        return

    def stop(*args: Any, **options: Any) -> Any:
        raise LanguageProgram

    owners: list[tuple[Any, str, Callable[[Any], Any]]] = [
        *((owner, "from_pretrained", classmethod) for owner in model_loaders()),
        (transformers.PreTrainedModel, "from_pretrained", classmethod),
        (transformers.AutoTokenizer, "from_pretrained", classmethod),
        (transformers.PreTrainedTokenizerBase, "from_pretrained", classmethod),
        (transformers.GenerationMixin, "generate", lambda function: function),
    ]
    datasets = sys.modules.get("datasets")
    if hasattr(datasets, "load_dataset"):  # a module of the program's may be called so
        owners.append((datasets, "load_dataset", lambda function: function))
    for owner, name, kind in owners:
        setattr(owner, name, kind(stop))


def model_loaders() -> list[Any]:
    """The classes of transformers that load a model by name, each with its own method."""
    module = importlib.import_module("transformers.models.auto.modeling_auto")
    base = module._BaseAutoModelClass
    owners = [each for each in vars(module).values() if isinstance(each, type)]
    own = [o for o in owners if issubclass(o, base) and "from_pretrained" in vars(o)]
    return list(dict.fromkeys([base, *own]))
