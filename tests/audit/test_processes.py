"""Programs with processes of their own, which take turns in the audited one."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import multiprocessing.connection
import multiprocessing.heap
import multiprocessing.pool
import os
import queue
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

import eligibility as el
from eligibility.audit.interception.context import intercepted
from eligibility.audit.interception.recorder import Recorder
from eligibility.audit.job import SIZES, Job


def run(program: Callable[[], None]) -> None:
    with intercepted(Recorder(Job((), SIZES[-1]))):
        program()


def started(work: Callable[..., object], *args: Any, **options: Any) -> Any:
    process = multiprocessing.Process(target=work, args=args, **options)
    process.start()
    return process


def test_a_process_does_its_work_in_this_one() -> None:
    def program() -> None:
        done: list[int] = []
        process = multiprocessing.get_context("spawn").Process(target=done.append, args=(1,))
        process.start()
        assert process.is_alive()
        assert process.exitcode is None
        process.join()
        assert (done, process.exitcode, process.is_alive()) == ([1], 0, False)
        assert multiprocessing.active_children() == []

    run(program)


def test_a_process_that_nobody_waits_for_is_run_at_the_end_unless_it_is_a_daemon() -> None:
    done: list[str] = []

    def program() -> None:
        started(done.append, "work")
        started(done.append, "daemon", daemon=True)
        done.append("program")

    run(program)
    assert done == ["program", "work"]


def answering(link: Any, other: Any) -> None:
    other.close()  # as in a process of its own, which holds a copy
    while True:
        item = link.recv()
        if item is None:
            break
        link.send(item * 2)


@pytest.mark.parametrize("size", [1, 1_000_000])  # the second is more than a pipe holds
def test_processes_talk_through_pipes(size: int) -> None:
    def program() -> None:
        here, there = multiprocessing.Pipe()
        process = started(answering, there, here)
        there.close()
        here.send(np.ones(size))
        assert here.recv().sum() == 2 * size
        assert not here.poll()
        here.send(3)
        assert multiprocessing.connection.wait([here]) == [here]
        assert here.poll(1.0)
        assert here.recv() == 6
        here.send(None)
        process.join()
        assert process.exitcode == 0

    run(program)


def test_processes_that_all_wait_are_refused() -> None:
    def program() -> None:
        here, there = multiprocessing.Pipe()
        started(there.recv)
        assert not here.poll(10.0)
        with pytest.raises(NotImplementedError, match="all of them wait for each other"):
            here.recv()
        here.send(1)

    run(program)


def producing(items: Any, many: int) -> None:
    for item in range(many):
        items.put(item)
        time.sleep(0.01)
    items.put(None)


@pytest.mark.parametrize("kind", ["Queue", "SimpleQueue", "JoinableQueue"])
def test_queues_have_the_order_of_the_turns(kind: str) -> None:
    def program() -> None:
        items = getattr(multiprocessing, kind)()
        assert items.empty()
        for _ in range(2):
            started(producing, items, 2)
        assert [items.get() for _ in range(6)] == [0, 0, 1, 1, None, None]
        if kind != "SimpleQueue":
            with pytest.raises(queue.Empty):
                items.get(timeout=0.1)

    run(program)


def test_a_full_queue_waits_for_who_empties_it() -> None:
    def program() -> None:
        items = multiprocessing.Queue(1)
        got: list[int] = []
        process = started(lambda: got.extend(items.get() for _ in range(3)))
        for item in range(3):
            items.put(item)
        process.join()
        assert got == [0, 1, 2]
        items.put(3)
        assert items.full()
        with pytest.raises(queue.Full):
            items.put_nowait(4)

    run(program)


def test_values_locks_events_conditions_and_barriers() -> None:
    def program() -> None:
        count, sums = multiprocessing.Value("i", 0), multiprocessing.Array("d", 2)
        go, all_here = multiprocessing.Event(), multiprocessing.Barrier(2)
        changed, lock = multiprocessing.Condition(), multiprocessing.RLock()
        order: list[str] = []

        def work(index: int) -> None:
            go.wait()
            with lock, lock:
                order.append(f"in {index}")
                time.sleep(1.0)  # the other one must not come in
                order.append(f"out {index}")
            all_here.wait()
            with count.get_lock():
                count.value += 1
            sums[index] = index + 0.5
            with changed:
                changed.notify_all()

        processes = [started(work, index) for index in range(2)]
        assert not go.is_set()
        go.set()
        with changed:
            assert changed.wait_for(lambda: count.value == 2)
        for process in processes:
            process.join()
        assert list(sums) == [0.5, 1.5]
        assert order == ["in 0", "out 0", "in 1", "out 1"]
        with pytest.raises(AssertionError, match="not owned"):
            lock.release()

    run(program)


def test_a_process_that_never_ends_can_be_terminated() -> None:
    def program() -> None:
        def forever() -> None:
            while True:
                time.sleep(1.0)

        process = started(forever)
        time.sleep(1.0)
        process.terminate()
        process.join()
        assert process.exitcode == -15
        assert multiprocessing.connection.wait([process.sentinel]) == [process.sentinel]

    run(program)


def test_what_a_process_raises_the_program_raises_and_its_exit_status_is_kept() -> None:
    def program() -> None:
        def leaving() -> None:
            raise SystemExit(3)

        process = started(leaving)
        process.join()
        assert process.exitcode == 1
        with pytest.raises(ZeroDivisionError):
            started(lambda: 1 / 0).join()

    run(program)


def test_a_process_has_a_gradient_whatever_the_program_waits_in() -> None:
    def program() -> None:
        weights = torch.ones(2, requires_grad=True)
        with torch.no_grad():
            started(lambda: (weights * 2).sum().backward()).join()
            assert not torch.is_grad_enabled()
        assert weights.grad is not None
        assert weights.grad.tolist() == [2.0, 2.0]

    run(program)


def test_tensors_are_shared() -> None:
    def program() -> None:
        net = torch.nn.Linear(2, 1).share_memory()
        assert net.weight.is_shared()
        items = torch.multiprocessing.Queue()
        items.put((net.weight, net.weight.data_ptr()))
        weight, address = items.get()
        assert weight.data_ptr() == address
        totals = torch.zeros(2)
        torch.multiprocessing.spawn(count_up, args=(totals,), nprocs=2)
        assert totals.tolist() == [1.0, 1.0]

    run(program)


def count_up(index: int, totals: torch.Tensor) -> None:
    totals[index] += 1


def test_pools_work_here() -> None:
    def program() -> None:
        assert os.cpu_count() == multiprocessing.cpu_count() == 2
        with multiprocessing.Pool(2) as pool:
            assert type(pool).__name__ == "Pool"
            assert pool.map(abs, [-1, 2]) == [1, 2] == list(pool.imap(abs, [-1, 2]))
            assert pool.starmap(pow, [(2, 3)]) == [8]
            assert pool.apply(pow, (2, 3)) == 8
            got: list[Any] = []
            assert pool.apply_async(abs, (-1,), callback=got.append).get() == 1
            assert got == [1]
            assert pool.map_async(abs, [-1]).get(1.0) == [1]
            failing = pool.apply_async(divmod, (1, 0), error_callback=got.append)
            assert isinstance(got.pop(), ZeroDivisionError)
            assert not failing.successful()
            with pytest.raises(ZeroDivisionError):
                failing.get()
        with concurrent.futures.ProcessPoolExecutor(max_workers=2) as executor:
            assert list(executor.map(abs, [-1, 2])) == [1, 2]
            with pytest.raises(ZeroDivisionError):
                executor.submit(divmod, 1, 0).result()

    run(program)


def replaced() -> tuple[Any, ...]:
    return (
        multiprocessing.Process.start,
        multiprocessing.pool.Pool,
        multiprocessing.connection.wait,
        multiprocessing.connection.Connection.close,
        torch.Tensor.share_memory_,
        os.cpu_count,
        time.sleep,
    )


def test_everything_is_put_back() -> None:
    before = replaced()
    run(lambda: multiprocessing.Value("i", 0))
    assert before == replaced()
    with multiprocessing.Pool(1) as pool:  # real processes again
        assert pool.apply(os.getpid) != os.getpid()
    value = multiprocessing.Value("i", 0)  # in memory that a process of any kind can open
    (arena, *_), _ = value.get_obj()._wrapper._state
    assert type(arena) is multiprocessing.heap.Arena


def test_vector_environments_of_libraries_step_here() -> None:
    from stable_baselines3.common import vec_env

    def program() -> None:
        made = vec_env.SubprocVecEnv([lambda: gymnasium.make("CartPole-v1")] * 2)
        made.reset()
        _, rewards, _, _ = made.step(np.array([0, 1]))
        assert rewards.shape == (2,)
        made.close()

    run(program)


WORKERS = """
import multiprocessing as mp
import gymnasium as gym
import numpy as np
import torch


def work(link, other, make):
    other.close()
    env = make()
    while True:
        order, action = link.recv()
        if order == "reset":
            link.send(env.reset()[0])
        elif order == "step":
            observation, reward, terminated, truncated, _ = env.step(action)
            over = terminated or truncated
            link.send((env.reset()[0] if over else observation, reward, terminated, over))
        else:
            break


class Environments:
    def __init__(self, makers):
        self.links, others = zip(*[mp.Pipe() for _ in makers])
        self.processes = [
            mp.Process(target=work, args=(other, link, make), daemon=True)
            for link, other, make in zip(self.links, others, makers)
        ]
        for process in self.processes:
            process.start()
        for other in others:
            other.close()

    def ask(self, order, actions=(None, None)):
        for link, action in zip(self.links, actions):
            link.send((order, action))
        return [link.recv() for link in self.links]

"""
HERE = """
import gymnasium as gym
import numpy as np
import torch


class Environments:
    def __init__(self, makers):
        self.envs = [make() for make in makers]

    def ask(self, order, actions=(None, None)):
        return [getattr(self, order)(env, action) for env, action in zip(self.envs, actions)]

    def reset(self, env, action):
        return env.reset()[0]

    def step(self, env, action):
        observation, reward, terminated, truncated, _ = env.step(action)
        over = terminated or truncated
        return env.reset()[0] if over else observation, reward, terminated, over
"""
LEARNING = """

def main():
    envs = Environments([lambda: gym.make("CartPole-v1")] * 2)
    net = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    seen = np.stack(envs.ask("reset"))
    while True:
        scores, rewards, overs = [], [], []
        for _ in range(2):
            policy = torch.distributions.Categorical(logits=net(torch.as_tensor(seen).float()))
            actions = policy.sample()
            made = envs.ask("step", actions.tolist())
            seen = np.stack([observation for observation, *_ in made])
            scores.append(policy.log_prob(actions))
            rewards.append(torch.tensor([reward for _, reward, *_ in made]))
            overs.append(torch.tensor([float(over) for *_, over in made]))
        total, returns = torch.zeros(2), []
        for reward, over in zip(reversed(rewards), reversed(overs)):
            total = reward + 0.9 * total * CUT
            returns.insert(0, total)
        loss = -(torch.stack(scores) * torch.stack(returns)).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize(
    ("cut", "faults"),
    [("(1 - over)", []), ("1.0", ["return-carried-over-episodes"])],
)
def test_environments_in_processes_are_judged_as_those_without(
    tmp_path: Path, cut: str, faults: list[str]
) -> None:
    reports = []
    for name, text in (("workers", WORKERS), ("here", HERE)):
        script = tmp_path / f"{name}.py"
        script.write_text(text + LEARNING.replace("CUT", cut), encoding="utf-8")
        reports.append(el.audit_script(script, max_paths=30, samples=30))
    workers, here = reports
    assert [finding.rule for finding in workers.findings] == faults
    assert workers.verdict == here.verdict
    assert workers.rule == here.rule
    assert workers.paths == here.paths
    assert workers.residual == pytest.approx(here.residual, abs=1e-12)


A3C = """
import gymnasium as gym
import torch
import torch.multiprocessing as mp


class Worker(mp.Process):
    def __init__(self, shared, optimizer, episodes, totals):
        super().__init__()
        self.shared, self.optimizer = shared, optimizer
        self.episodes, self.totals = episodes, totals
        self.env, self.net = gym.make("CartPole-v1"), torch.nn.Linear(4, 2)

    def run(self):
        if FIRST:
            self.net.load_state_dict(self.shared.state_dict())
        while self.episodes.value < 3000:
            observation, _ = self.env.reset()
            scores, rewards, over = [], [], False
            while not over:
                logits = self.net(torch.as_tensor(observation))
                policy = torch.distributions.Categorical(logits=logits)
                action = policy.sample()
                observation, reward, terminated, truncated, _ = self.env.step(action.item())
                over = terminated or truncated
                scores.append(policy.log_prob(action))
                rewards.append(reward)
            total, returns = 0.0, []
            for reward in reversed(rewards):
                total = reward + 0.9 * total
                returns.insert(0, total)
            loss = -sum(score * value for score, value in zip(scores, returns))
            self.ZEROED.zero_grad()
            loss.backward()
            for own, shared in zip(self.net.parameters(), self.shared.parameters()):
                shared._grad = own.grad
            self.optimizer.step()
            self.net.load_state_dict(self.shared.state_dict())
            with self.episodes.get_lock():
                self.episodes.value += 1
            self.totals.put(sum(rewards))
        self.totals.put(None)


if __name__ == "__main__":
    shared = torch.nn.Linear(4, 2)
    shared.share_memory()
    optimizer = torch.optim.Adam(shared.parameters(), lr=1e-4)
    episodes, totals = mp.Value("i", 0), mp.Queue()
    workers = [Worker(shared, optimizer, episodes, totals) for _ in range(mp.cpu_count())]
    for worker in workers:
        worker.start()
    while totals.get() is not None:
        pass
    for worker in workers:
        worker.join()
"""


@pytest.mark.parametrize("first", [True, False])  # whether a worker begins with the shared weights
@pytest.mark.parametrize(
    # `optimizer.zero_grad` lets go of the shared gradients, and the worker's own stay: in most
    # published programs of this form, which were right before torch 2.0.
    ("zeroed", "faults"),
    [("net", []), ("optimizer", ["gradients-not-zeroed"])],
)
def test_asynchronous_workers_are_judged(
    tmp_path: Path, zeroed: str, faults: list[str], first: bool
) -> None:
    script = tmp_path / "a3c.py"
    script.write_text(A3C.replace("ZEROED", zeroed).replace("FIRST", str(first)), encoding="utf-8")
    report = el.audit_script(script)
    assert report.verdict == ("biased" if faults else "convention"), report.text()
    assert [finding.rule for finding in report.findings] == faults, report.text()
    if first or not faults:
        assert [convention.name for convention in report.conventions] == ["gamma-t-dropped"]
    assert (
        first
        or faults
        or any("the audit judges the second update" in note for note in report.notes)
    )
