"""What the locks of processes are made of, where these take turns."""

from __future__ import annotations

from typing import Any

from eligibility.audit.interception.turns import Turns

_RECURSIVE = 0  # its number among the kinds


class Semaphore:
    """One of multiprocessing, which is all that its locks and conditions are made of."""

    handle, name = 0, None

    def __init__(
        self,
        turns: Turns,
        kind: int,
        value: int,
        maxvalue: int,
        name: str = "",
        unlink: bool = False,
    ) -> None:
        self._turns = turns
        self.kind, self.maxvalue = kind, maxvalue
        self._left, self._taken = value, 0
        self._owner: Any = None

    def acquire(self, block: bool = True, timeout: float | None = None) -> bool:
        if self.kind == _RECURSIVE and self._is_mine():
            self._taken += 1
            return True
        if not self._turns.wait(lambda: self._left > 0, timeout if block else 0.0):
            return False
        self._left -= 1
        self._taken += 1
        self._owner = self._turns.current()
        return True

    def release(self) -> None:
        if self.kind == _RECURSIVE:
            if not self._is_mine():
                raise AssertionError("attempt to release recursive lock not owned by thread")
            if self._taken > 1:
                self._taken -= 1
                return
        elif self._left >= self.maxvalue:
            raise ValueError("semaphore or lock released too many times")
        self._left += 1
        self._taken -= 1

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *details: Any) -> None:
        self.release()

    def _count(self) -> int:
        return self._taken

    def _is_mine(self) -> bool:
        return self._taken > 0 and self._owner is self._turns.current()

    def _get_value(self) -> int:
        return self._left

    def _is_zero(self) -> bool:
        return self._left == 0

    def _after_fork(self) -> None:
        pass
