"""Pools of processes, whose work is done here and at once."""

from __future__ import annotations

import concurrent.futures
import multiprocessing.pool
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from functools import partialmethod
from typing import Any

from eligibility.audit.patches import Patches, disguised

_Callback = Callable[[Any], object] | None


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
        return _Result(fn, *args, **kwargs)


class _Result(Future[Any]):
    """Work that is done: what executors return, and the asynchronous calls of a pool."""

    get, ready = Future.result, Future.done

    def __init__(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        try:
            self.set_result(work(*args, **kwargs))
        except Exception as error:  # whatever it raised in its process, `result` raises
            self.set_exception(error)

    def tell(self, callback: _Callback, error_callback: _Callback = None) -> _Result:
        error = self.exception()
        if error is None and callback is not None:
            callback(self.result())
        if error is not None and error_callback is not None:
            error_callback(error)
        return self

    def wait(self, timeout: float | None = None) -> None:
        pass

    def successful(self) -> bool:
        return self.exception() is None


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

    def _later(
        self,
        name: str,
        func: Callable[..., Any],
        *given: Any,
        callback: _Callback = None,
        error_callback: _Callback = None,
        **options: Any,
    ) -> _Result:
        """The arguments of `apply`, `map` or `starmap`, and then two functions that are told."""
        done = _Result(getattr(self, name), func, *given[:2], **options)
        return done.tell(*given[2:] or (callback, error_callback))

    apply_async = partialmethod(_later, "apply")
    map_async = partialmethod(_later, "map")
    starmap_async = partialmethod(_later, "starmap")

    def __enter__(self) -> _Pool:
        return self

    def __exit__(self, *details: Any) -> None:
        pass

    def close(self) -> None:
        pass

    terminate = join = close
