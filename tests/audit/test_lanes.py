"""Several runs of a script at once: the same records in the same order as one after the other."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from eligibility.audit.choices import paths_after
from eligibility.audit.job import SIZES, Job
from eligibility.audit.running import runner as running
from eligibility.audit.running.forkserver import WorkerError
from eligibility.audit.running.runner import CallableRunner, ScriptRunner, run_all
from eligibility.audit.running.survey import silent, survey
from eligibility.audit.trace import Draw, Trace

PROGRAM = """
import os
from pathlib import Path
import gymnasium, torch
from torch.distributions import Categorical
assert not Path("left").exists()
Path("left").write_text(os.environ["HOME"])
Path.home().joinpath("mine").touch()
env = gymnasium.make("CartPole-v1")
net = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
observation, _ = env.reset()
loss, done = 0.0, False
while not done:
    dist = Categorical(logits=net(torch.as_tensor(observation)))
    action = dist.sample()
    observation, reward, terminated, truncated, _ = env.step(action.item())
    loss, done = loss - dist.log_prob(action) * reward, terminated or truncated
optimizer.zero_grad(); loss.backward(); optimizer.step()
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM, encoding="utf-8")
    return path


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three lanes from the second run on."""
    monkeypatch.setattr(running, "processors", lambda: 3)
    monkeypatch.setattr(running, "_LANES_AFTER", 0.0)


def runner_of(script: Path) -> ScriptRunner:
    return ScriptRunner(script, (), 20, 2048, False)


def surveyed(script: Path) -> Iterator[Trace]:
    with runner_of(script) as runner:
        found = survey(runner, 200, 20, silent)
        yield from found.traces
        assert found.slopes


@pytest.mark.usefixtures("at_once")
def test_a_survey_in_lanes_is_the_same_as_one_run_after_the_other(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    several = [*surveyed(script)]
    monkeypatch.setattr(running, "processors", lambda: 1)
    alone = [*surveyed(script)]
    assert len(alone) > 4
    assert several == alone


@pytest.mark.usefixtures("at_once")
def test_answers_come_in_the_order_of_the_jobs_and_unclaimed_ones_do_no_harm(script: Path) -> None:
    job = Job((), SIZES[0])
    with runner_of(script) as runner:
        assert runner.ahead == 1
        runner.run(job)
        unclaimed = [runner.start(replace(job, seed=seed)) for seed in range(5)]
        assert runner.ahead == 6
        seeds = [*range(9)]
        found = [*run_all(runner, (replace(job, seed=seed) for seed in seeds))]
        expected = [runner.run(replace(job, seed=seed)) for seed in seeds]
        assert found == expected
        assert len(unclaimed) == 5


@pytest.mark.usefixtures("at_once")
def test_lanes_end_with_their_runner_although_a_run_is_going_on(script: Path) -> None:
    # it waits for what nobody writes: an audit would skip a sleep
    text = "import os\nreading, writing = os.pipe()\nos.read(reading, 1)\n"
    script.write_text(text, encoding="utf-8")
    job = Job((), SIZES[0])
    with runner_of(script) as runner:
        worker = runner._worker.pid
        runner._open_lanes()
        for _ in range(3):
            runner.start(job)
        alive, deadline = [worker], time.monotonic() + 60
        while len(alive) < 6 and time.monotonic() < deadline:
            time.sleep(0.01)
            alive = family(worker)
    assert len(alive) == 6  # the worker, two lanes, three runs
    deadline = time.monotonic() + 60
    while any(map(exists, alive)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(map(exists, alive))


@pytest.mark.usefixtures("at_once")
def test_a_lane_that_dies_is_an_error_and_nothing_waits_for_it(script: Path) -> None:
    job = Job((), SIZES[0])
    with runner_of(script) as runner:
        runner.run(job)
        runner._open_lanes()
        runner.run(job)
        for lane in family(runner._worker.pid)[1:]:
            os.kill(lane, signal.SIGKILL)
        with pytest.raises(WorkerError, match="an early exit"):
            [*run_all(runner, (replace(job, seed=seed) for seed in range(6)))]


def family(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return [pid, *(other for child in children for other in family(int(child)))]


def exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").split()[2] != "Z"


def test_a_callable_is_run_when_its_result_is_asked_for() -> None:
    runs: list[int] = []
    runner = CallableRunner(lambda: runs.append(len(runs)))
    later = [runner.start(Job((), SIZES[0])) for _ in range(2)]
    assert not runs
    assert [trace().outcome for trace in later] == ["finished", "finished"]
    assert runs == [0, 1]


def test_the_paths_after_one_are_known_as_far_as_it_tells() -> None:
    draws = tuple(
        Draw("action", probs, picked)
        for picked, probs in ((0, (0.5, 0.5)), (1, (0.2, 0.0, 0.8)), (0, (1.0, 0.0)))
    )
    trace = Trace("updated", draws=draws)
    assert [*paths_after(trace)] == [(0, 2), (1,)]
    assert [*paths_after(trace, given=1)] == [(0, 2)]
