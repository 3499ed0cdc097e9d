"""Plots, logs and whatever else a program does apart from learning, replaced by no-ops."""

from __future__ import annotations

import builtins
import importlib.abc
import importlib.machinery
import io
import opcode
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType, ModuleType
from typing import Any

import torch

from eligibility.audit.interception.one_process import run_alone
from eligibility.audit.interception.other_numbers import seed_generators, set_states, states
from eligibility.audit.patches import Patches
from eligibility.audit.processor import (
    PROCESSOR,
    cuda_device_count,
    cuda_is_available,
    made_near,
    moved_near,
    near,
)

# Packages that show or log: none of them can change a gradient.
_INERT = {
    "matplotlib", "seaborn", "plotly", "visdom", "wandb", "tensorboard", "tensorboardX",
    "comet_ml", "mlflow", "swanlab", "trackio", "aim", "clearml", "IPython", "ipywidgets", "pygame",
    "imageio", "pyvirtualdisplay", "progressbar", "neptune", "moviepy", "tkinter",
}  # fmt: skip
# Packages that programs use for their tables, films and plots: inert if they are not installed.
_INERT_IF_MISSING = {"cv2", "pandas", "psutil", "tqdm"}
_INERT_PARTS = (  # of packages that are not inert
    "torch.utils.tensorboard", "tqdm.notebook", "gym.wrappers.monitoring",
)  # fmt: skip
_FILMS = (".mp4", ".webm", ".avi", ".gif", ".png", ".jpg")
_SEED = 20250101
_ANSWERS = 3  # that a program gets at the keyboard
# Of torch.cuda: what programs call to set one up or to ask about it.
_WITHOUT_EFFECT = (
    "set_device", "manual_seed", "manual_seed_all", "synchronize", "empty_cache", "init",
    "reset_peak_memory_stats", "current_device", "max_memory_allocated", "memory_allocated",
    "memory_reserved",
)  # fmt: skip


class Inert:
    """Takes every call, attribute and item, and does nothing."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._iterable = args[0] if args and hasattr(args[0], "__iter__") else ()

    def __getattr__(self, name: str) -> Inert:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Inert()

    def __call__(self, *args: Any, **options: Any) -> Inert:
        return Inert(*args)

    def __getitem__(self, key: Any) -> Inert:
        return Inert()

    def _unchanged(self, *others: Any) -> Inert:
        return self

    # such as the width of a drawn text, to which a program adds a margin
    __add__ = __radd__ = __sub__ = __rsub__ = __neg__ = _unchanged
    __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = _unchanged

    def __fspath__(self) -> str:
        return "."  # the folder of a run that nobody keeps

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def __enter__(self) -> Inert:
        return self

    def __exit__(self, *details: Any) -> None:
        pass

    def __iter__(self) -> Iterator[Any]:
        wanted = _unpacked(sys._getframe(1))
        return iter([Inert() for _ in range(wanted)] if wanted else self._iterable)

    def __len__(self) -> int:
        return len(self._iterable)


def _unpacked(frame: FrameType) -> int:
    """Into how many names its code unpacks at this moment, as ``fig, ax = …`` does; else 0."""
    code, at = frame.f_code.co_code, frame.f_lasti
    return code[at + 1] if opcode.opname[code[at]] == "UNPACK_SEQUENCE" else 0


class _InertModule(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "trange":
            return range
        if name in ("tqdm", "track"):
            return _Progress
        if not name[0].isupper():
            return Inert()
        # a class: it may be inherited from, caught or asked for by isinstance
        ending = {"Warning": Warning, "Error": Exception, "Exception": Exception}
        bases = [base for end, base in ending.items() if name.endswith(end)]
        made = type(name, (bases[0] if bases else Inert,), {})
        self.__dict__[name] = made  # the same one when it is asked for again
        return made


class _Progress(Inert):
    """A progress bar that only counts."""

    def __init__(self, iterable: Any = (), *args: Any, **options: Any) -> None:
        super().__init__(iterable)


class _InertFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, holds: Callable[[str], bool], given: Mapping[str, Any] = {}) -> None:
        self._holds, self._given = holds, given
        self.made: list[str] = []

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if self._holds(name):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        self.made.append(spec.name)
        module = _InertModule(spec.name)
        vars(module).update(self._given)
        return module

    def exec_module(self, module: ModuleType) -> None:
        pass


def quieten(patches: Patches) -> None:
    """Inert packages, no accelerator, no compilation, the same seeds in every run."""
    _make_inert(patches)
    _keep_files_in_memory(patches)
    stay_on_processor(patches)
    run_alone(patches)
    patches.set(torch, "compile", lambda model=None, **options: model or (lambda inner: inner))
    if torch.jit._state._enabled.enabled:  # TorchScript returns what it is given, to be followed
        torch.jit._state.disable()
        patches.callback(torch.jit._state.enable)
    _press_enter(patches)
    _empty_films(patches)
    patches.callback(set_states, states())
    seed_generators(_SEED)


def replace_package(package: str, given: Mapping[str, Any]) -> None:
    """From now on in this process it and all of its modules have these names; others are inert."""

    def holds(name: str) -> bool:
        return name.partition(".")[0] == package

    for name in filter(holds, [*sys.modules]):
        del sys.modules[name]
    sys.meta_path.insert(0, _InertFinder(holds, given))


def _make_inert(patches: Patches) -> None:
    """The packages that show or log; what of them is loaded is not from now on."""
    first = _InertFinder(_is_inert)
    last = _InertFinder(lambda name: name.partition(".")[0] in _INERT_IF_MISSING)
    sys.meta_path.insert(0, first)
    sys.meta_path.append(last)
    loaded: dict[str, ModuleType] = {}
    if any(name in sys.modules for name in (*_INERT, *_INERT_PARTS)):  # seldom: there are thousands
        loaded = {name: sys.modules.pop(name) for name in [*sys.modules] if _is_inert(name)}

    def put_back() -> None:
        for finder in (first, last):
            sys.meta_path.remove(finder)
            for name in finder.made:
                sys.modules.pop(name, None)
        sys.modules.update(loaded)

    patches.callback(put_back)


def _is_inert(name: str) -> bool:
    return name.partition(".")[0] in _INERT or name.startswith(_INERT_PARTS)


def _keep_files_in_memory(patches: Patches) -> None:
    """Files are left alone: their folders may be missing, and in a callable they are the user's.

    What a program saves it can load again.
    """
    saved: dict[str, bytes] = {}

    def save(obj: Any, f: Any, *args: Any, **options: Any) -> None:
        if hasattr(f, "write"):
            stock_save(obj, f, *args, **options)
            return
        buffer = io.BytesIO()
        stock_save(obj, buffer, *args, **options)
        saved[os.path.abspath(f)] = buffer.getvalue()

    def load(f: Any, *args: Any, **options: Any) -> Any:
        content = None if hasattr(f, "read") else saved.get(os.path.abspath(f))
        return stock_load(f if content is None else io.BytesIO(content), *args, **options)

    stock_save = patches.set(torch, "save", save)
    stock_load = patches.set(torch, "load", load)


def _press_enter(patches: Patches) -> None:
    """Answer a question with Enter, a few times: some programs ask until they like the answer."""

    def answered(prompt: object = "") -> str:
        if next(answers, None) is None:
            raise EOFError("EOF when reading a line")
        return ""

    answers = iter(range(_ANSWERS))
    patches.set(builtins, "input", answered)


def _empty_films(patches: Patches) -> None:
    """A film or picture that is not there is empty: what would have drawn it is inert."""

    def opened(file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
        drawn = mode == "rb" and str(file).lower().endswith(_FILMS) and not os.path.exists(file)
        return io.BytesIO() if drawn else stock(file, mode, *args, **options)

    stock = patches.set(builtins, "open", opened)


def stay_on_processor(patches: Patches) -> None:
    """No accelerator is available, and what a program sends to one stays where it is.

    What is made for one is made on the processor by the mode that sees every function of torch:
    a second mode would cost every operation of the program microseconds.
    """
    patches.set(torch.cuda, "is_available", cuda_is_available)
    patches.set(torch.cuda, "get_device_properties", lambda device=None: PROCESSOR)
    patches.set(torch.cuda, "device_count", cuda_device_count)
    patches.set(torch.cuda, "get_device_name", lambda device=None: "none")
    for name in _WITHOUT_EFFECT:
        patches.set(torch.cuda, name, lambda *args, **options: 0)
    for device in (torch.xpu, torch.mtia):  # seeding one takes the stack's text each time
        patches.set(device, "manual_seed_all", lambda seed: None)
    patches.set(torch.backends.mps, "is_available", lambda: False)
    patches.set(torch, "set_default_device", lambda device: None)

    def load(f: Any, map_location: Any = None, *args: Any, **options: Any) -> Any:
        return stock_load(f, "cpu", *args, **options)

    stock_load = patches.set(torch, "load", load)

    def watch(owner: Any) -> None:
        def to(self: Any, *args: Any, **options: Any) -> Any:
            kept = {name: near(value) for name, value in made_near(options).items()}
            return stock(self, *moved_near(args), **kept)

        stock = patches.set(owner, "to", to)
        patches.set(owner, "cuda", lambda self, *args, **options: self)

    for kind in (torch.Tensor, torch.nn.Module):
        watch(kind)
