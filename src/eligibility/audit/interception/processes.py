"""Workers in processes of their own: their work is done here, in the same order each time."""

from __future__ import annotations

import multiprocessing.connection
import multiprocessing.process
import sys
from typing import Any

import torch.utils.data

from eligibility.audit.patches import Patches, disguised

# Vector environments whose workers are processes, and the class that does the same without: of
# each the modules that hold it.
_VECTORS = (
    ("stable_baselines3.common.vec_env", "SubprocVecEnv", "DummyVecEnv"),
    ("tianshou.env", "SubprocVectorEnv", "DummyVectorEnv"),
    ("tianshou.env", "ShmemVectorEnv", "DummyVectorEnv"),
)
_OF_WORKERS = {
    "num_workers": 0, "prefetch_factor": None, "persistent_workers": False,
    "multiprocessing_context": None, "timeout": 0,
}  # fmt: skip


def stay_in_process(patches: Patches) -> None:
    """Processes, loaders and vector environments of the program do their work in this process."""
    _run_targets_here(patches)
    _load_here(patches)
    for module, name, plain in _VECTORS:
        if module in sys.modules and hasattr(sys.modules[module], name):
            stock = getattr(sys.modules[module], name)
            made = _without_workers(getattr(sys.modules[module], plain))
            patches.set(sys.modules[module], name, disguised(made, stock))


def _run_targets_here(patches: Patches) -> None:
    """``start`` runs the target to its end; one that waits for its parent cannot be run so."""
    running: list[Any] = []

    def start(self: Any) -> None:
        running.append(self)
        try:
            self.run()
        finally:
            running.pop()
        self._popen = _Ended()

    def received(name: str) -> None:
        def receive(self: Any, *args: Any, **options: Any) -> Any:
            if running and not self.poll(0):
                raise NotImplementedError(
                    "a worker process waits for what its parent sends; the audit runs workers one "
                    "after the other in one process: train without them"
                )
            return stock(self, *args, **options)

        stock = patches.set(multiprocessing.connection.Connection, name, receive)

    patches.set(multiprocessing.process.BaseProcess, "start", start)
    patches.set(multiprocessing.process.BaseProcess, "join", lambda self, timeout=None: None)
    patches.set(multiprocessing.process.BaseProcess, "is_alive", lambda self: False)
    received("recv")
    received("recv_bytes")


class _Ended:
    """A process that has ended well, as its object sees it."""

    pid, sentinel, returncode = 0, 0, 0

    def poll(self, *args: Any) -> int:
        return 0

    def wait(self, *args: Any) -> int:
        return 0

    def terminate(self) -> None:
        pass

    kill = close = terminate


def _load_here(patches: Patches) -> None:
    def initialise(self: Any, dataset: Any, *args: Any, **options: Any) -> None:
        kept = {name: value for name, value in options.items() if name not in _OF_WORKERS}
        stock(self, dataset, *args[:_BEFORE_WORKERS], *(0 for _ in args[_BEFORE_WORKERS:][:1]),
              *args[_BEFORE_WORKERS + 1 :], **kept)  # fmt: skip

    stock = patches.set(torch.utils.data.DataLoader, "__init__", initialise)


_BEFORE_WORKERS = 4  # batch_size, shuffle, sampler, batch_sampler


def _without_workers(plain: type[Any]) -> type[Any]:
    class InProcess(plain):  # type: ignore[misc]  # a class of a library that is not typed
        def __init__(self, env_fns: Any, *args: Any, **options: Any) -> None:
            super().__init__(env_fns)

    return InProcess
