"""Programs with threads, which take turns in the audited one."""

from __future__ import annotations

import queue
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import eligibility as el
from tests.audit.test_processes import A3C, run


def started(work: object, *args: object, daemon: bool = False) -> threading.Thread:
    thread = threading.Thread(target=work, args=args, daemon=daemon)  # type: ignore[arg-type]
    thread.start()
    return thread


def test_threads_take_turns_and_the_joined_one_the_last() -> None:
    done: list[str] = []

    def program() -> None:
        thread = started(done.append, "joined")
        started(done.append, "other")
        assert thread.is_alive()
        assert not done
        thread.join()
        assert not thread.is_alive()
        started(done.append, "at the end")
        started(done.append, "never", daemon=True)

    run(program)
    assert done == ["other", "joined", "at the end"]


def test_locks_conditions_events_and_queues() -> None:
    def program() -> None:
        lock, again, go = threading.Lock(), threading.RLock(), threading.Event()
        changed, all_here = threading.Condition(), threading.Barrier(2)
        items: queue.Queue[int] = queue.Queue(1)
        order: list[str] = []

        def work(index: int) -> None:
            go.wait()
            with again, again, lock:
                order.append(f"in {index}")
                time.sleep(1.0)  # the other one must not come in
                assert lock.locked()
                order.append(f"out {index}")
            all_here.wait()
            items.put(index)
            with changed:
                changed.notify()

        threads = [started(work, index) for index in range(2)]
        assert not go.wait(10.0)
        go.set()
        assert sorted(items.get() for _ in range(2)) == [0, 1]
        with changed:
            assert not changed.wait(1.0)
        for thread in threads:
            thread.join(5.0)
            assert not thread.is_alive()
        assert order in (["in 0", "out 0", "in 1", "out 1"], ["in 1", "out 1", "in 0", "out 0"])
        with pytest.raises(queue.Empty):
            items.get(timeout=1.0)

    run(program)


def test_a_pool_of_threads_works_here() -> None:
    def program() -> None:
        with ThreadPoolExecutor(max_workers=2) as executor:
            assert list(executor.map(abs, [-1, 2, -3])) == [1, 2, 3]
            with pytest.raises(ZeroDivisionError):
                executor.submit(divmod, 1, 0).result()

    run(program)


def test_what_was_there_before_stays_a_thread_with_real_locks() -> None:
    asked, seen = threading.Event(), []

    def other() -> None:
        asked.wait()
        seen.append(type(threading.Lock()))
        thread = threading.Thread(target=seen.append, args=(threading.get_ident(),))
        thread.start()
        thread.join()
        answered.set()

    answered = threading.Event()
    thread = threading.Thread(target=other)
    thread.start()

    def program() -> None:
        asked.set()
        answered.wait = lambda: None  # type: ignore[method-assign]  # made before: not by turns
        while len(seen) < 2:
            pass

    run(program)
    thread.join()
    assert seen[0] is type(threading.Lock())
    assert seen[1] == thread.ident


def test_a_thread_knows_who_it_is() -> None:
    def program() -> None:
        seen: list[object] = []
        thread = started(lambda: seen.extend([threading.current_thread(), threading.get_ident()]))
        thread.join()
        assert seen[0] is thread
        assert seen[1] != threading.get_ident()
        assert threading.current_thread() is threading.main_thread()
        lock = threading.RLock()
        with lock, pytest.raises(RuntimeError, match="un-acquired"):
            started(lock.release).join()

    run(program)


def test_a_lock_that_a_program_leaves_behind_is_one_of_threads() -> None:
    left: list[threading.Lock] = []
    run(lambda: left.append(threading.Lock()))
    (lock,) = left
    lock.acquire()
    assert not lock.acquire(timeout=0.01)
    threading.Timer(0.05, lock.release).start()
    assert lock.acquire(timeout=10.0)


def test_everything_is_put_back() -> None:
    names = ("Lock", "RLock", "_allocate_lock", "Thread")
    before = [getattr(threading, name) for name in names]
    methods = threading.Thread.start, threading.Thread.join, threading.Thread.is_alive
    run(lambda: None)
    assert before == [getattr(threading, name) for name in names]
    assert methods == (threading.Thread.start, threading.Thread.join, threading.Thread.is_alive)


@pytest.mark.parametrize(
    ("zeroed", "faults"), [("net", []), ("optimizer", ["gradients-not-zeroed"])]
)
def test_asynchronous_threads_are_judged(tmp_path: Path, zeroed: str, faults: list[str]) -> None:
    """Where the environments' choices came from threads, sound programs were called biased."""
    text = A3C.replace("ZEROED", zeroed).replace("FIRST", "True")
    for processes, threads in (
        ("mp.Process", "threading.Thread"),
        ('mp.Value("i", 0), mp.Queue()', "Count(), queue.Queue()"),
        ("import torch.multiprocessing as mp", IMPORTS),
        ("mp.cpu_count()", "2"),
    ):
        assert processes in text
        text = text.replace(processes, threads)
    script = tmp_path / "a3c.py"
    script.write_text(text, encoding="utf-8")
    report = el.audit_script(script)
    assert report.verdict == ("biased" if faults else "convention"), report.text()
    assert [finding.rule for finding in report.findings] == faults, report.text()
    assert report.probability == pytest.approx(1.0, abs=1e-12)


IMPORTS = """import queue
import threading


class Count:
    def __init__(self):
        self.value, self.lock = 0, threading.Lock()

    def get_lock(self):
        return self.lock
"""
