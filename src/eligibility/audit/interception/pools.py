"""Pools of processes, whose work is done here and at once."""

from __future__ import annotations

import concurrent.futures
import multiprocessing.pool
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any

from eligibility.audit.patches import Patches, disguised


def work_here(patches: Patches) -> None:
    """The pools of ``multiprocessing`` and ``concurrent.futures`` have no processes."""
    for owner, name, made in (
        (multiprocessing.pool, "Pool", _Pool),
        (concurrent.futures, "ProcessPoolExecutor", _Executor),
    ):
        patches.set(owner, name, disguised(type(name, (made,), {}), getattr(owner, name)))


class _Executor(concurrent.futures.Executor):
    def __init__(
        self,
        max_workers: int | None = None,
        mp_context: Any = None,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        **options: Any,
    ) -> None:
        if initializer is not None:
            initializer(*initargs)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # whatever it raised in its process, `result` raises
            future.set_exception(error)
        return future


class _Result:
    """What the asynchronous calls of a pool return."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def get(self, timeout: float | None = None) -> Any:
        return self._value

    def wait(self, timeout: float | None = None) -> None:
        pass

    def ready(self) -> bool:
        return True

    successful = ready


class _Pool:
    def __init__(
        self,
        processes: int | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: Iterable[Any] = (),
        *options: Any,
        **more: Any,
    ) -> None:
        if initializer is not None:
            initializer(*initargs)

    def apply(self, func: Callable[..., Any], args: Any = (), kwds: Any = None) -> Any:
        return func(*args, **(kwds or {}))

    def map(self, func: Callable[..., Any], iterable: Any, chunksize: Any = None) -> list[Any]:
        return [func(item) for item in iterable]

    def starmap(self, func: Callable[..., Any], iterable: Any, chunksize: Any = None) -> list[Any]:
        return [func(*items) for items in iterable]

    def imap(self, func: Callable[..., Any], iterable: Any, chunksize: Any = 1) -> Iterator[Any]:
        return iter(self.map(func, iterable))

    imap_unordered = imap

    def apply_async(
        self,
        func: Callable[..., Any],
        args: Any = (),
        kwds: Any = None,
        callback: Any = None,
        *_: Any,
    ) -> _Result:
        return _result(self.apply(func, args, kwds), callback)

    def map_async(
        self, func: Callable[..., Any], iterable: Any, chunksize: Any = None, callback: Any = None
    ) -> _Result:
        return _result(self.map(func, iterable), callback)

    def starmap_async(
        self, func: Callable[..., Any], iterable: Any, chunksize: Any = None, callback: Any = None
    ) -> _Result:
        return _result(self.starmap(func, iterable), callback)

    def __enter__(self) -> _Pool:
        return self

    def __exit__(self, *details: Any) -> None:
        pass

    def close(self) -> None:
        pass

    terminate = join = close


def _result(value: Any, callback: Callable[[Any], object] | None) -> _Result:
    if callback is not None:
        callback(value)
    return _Result(value)
