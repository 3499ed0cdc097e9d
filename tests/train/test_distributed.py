"""Several real processes make the steps of one; a worker that is killed costs nothing."""

from __future__ import annotations

import contextlib
import csv
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

import eligibility as el
from eligibility.cli.app import main
from eligibility.cli.train import train
from eligibility.errors import EligibilityError, InvalidValueError
from eligibility.train.distributed import Processes
from tests.ranks import together
from tests.train import shared_training


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    path = tmp_path_factory.mktemp("alone") / "weights.safetensors"
    shared_training.main([str(path)])
    return load_file(path)


@pytest.mark.parametrize("number", [2, 4])
def test_processes_make_the_steps_of_one(
    number: int, alone: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    out = tmp_path / "weights.safetensors"
    together(number, shared_training.main, [str(out)])
    found = load_file(out)
    assert found.keys() == alone.keys()
    for name, weights in found.items():
        # The order of a sum of float32 numbers, through a handful of steps of Adam.
        torch.testing.assert_close(weights, alone[name], rtol=1e-3, atol=1e-4, msg=name)


def rows_of(folder: Path) -> list[dict[str, str]]:
    with (folder / "curve.csv").open() as file:
        return list(csv.DictReader(file))


def command(out: Path, steps: int = 30000) -> list[str]:
    options = f"--seed 1 --steps {steps} --stop-at inf --environments 8 --learning-rate 0.001"
    return ["train", "CartPole-v1", *options.split(), "--out", str(out)]


def run(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 0


def run_as_worker(arguments: list[str], folder: Path) -> None:
    """What torchrun starts; it leaves its number, its start and its process id."""
    torch.set_num_threads(1)
    name = f"rank{os.environ['RANK']}-start{os.environ['TORCHELASTIC_RESTART_COUNT']}"
    (folder / name).write_text(str(os.getpid()))
    with contextlib.redirect_stdout(None), contextlib.redirect_stderr(None):
        run(arguments)


def kill_once_there_is(checkpoint: Path, process: Path) -> None:
    deadline = time.monotonic() + 120
    while not checkpoint.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(int(process.read_text()), signal.SIGKILL)


def test_a_killed_worker_is_started_again_and_nothing_is_lost(tmp_path: Path) -> None:
    together(2, run, command(tmp_path / "whole"))
    # torchrun's own agent, whose processes come from the same server as those before.
    launch = elastic_launch(
        LaunchConfig(
            min_nodes=1, max_nodes=1, nproc_per_node=2, max_restarts=1, start_method="forkserver",
            rdzv_backend="c10d", rdzv_endpoint="localhost:0", monitor_interval=0.02,
            logs_specs=DefaultLogsSpecs(log_dir=str(tmp_path / "logs")),
        ),
        run_as_worker,
    )  # fmt: skip
    checkpoint, victim = tmp_path / "killed" / "checkpoint.safetensors", tmp_path / "rank1-start0"
    killer = threading.Thread(target=kill_once_there_is, args=(checkpoint, victim))
    killer.start()
    launch(command(tmp_path / "killed"), tmp_path)
    killer.join()
    starts = {path.name for path in tmp_path.glob("rank*")}
    assert starts == {f"rank{rank}-start{start}" for rank in (0, 1) for start in (0, 1)}
    assert rows_of(tmp_path / "killed") == rows_of(tmp_path / "whole")


def test_two_nodes_make_the_steps_of_one(tmp_path: Path) -> None:
    """As the page on many machines starts them: a torchrun on each, which meet at an address."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    meet = ("--rdzv-backend", "c10d", "--rdzv-endpoint", address, "--rdzv-id", "job")
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", *meet)
    start = (*torchrun, "--nproc-per-node", "1", "-m", "eligibility")
    start = (*start, *command(tmp_path / "nodes", 3000))
    nodes = [subprocess.Popen(start, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    for node in nodes:
        _, errors = node.communicate(timeout=120)
        assert node.returncode == 0, errors
    together(2, run, command(tmp_path / "whole", 3000))
    assert len(rows_of(tmp_path / "whole")) > 5
    assert rows_of(tmp_path / "nodes") == rows_of(tmp_path / "whole")


def test_restarts_need_a_folder_to_go_on_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "3")
    with pytest.raises(InvalidValueError, match="add --out FOLDER"):
        train(
            "CartPole-v1", config=None, out=None, resume=None, wandb=None, video=None,
            allow_module=None, max_seconds=None, keep_best=None, json_=False,
        )  # fmt: skip


def test_processes_that_do_not_divide_the_shards_are_refused() -> None:
    with pytest.raises(InvalidValueError) as raised:
        Processes(rank=0, size=3).shards(4)
    assert str(raised.value) == (
        "`shards`: got 4, expected a multiple of the 3 processes; pass --shards 3, or start a "
        "number of processes that divides 4"
    )


def test_shards_that_do_not_divide_the_environments_are_refused() -> None:
    with pytest.raises(InvalidValueError) as raised:
        el.Reinforce("CartPole-v1", environments=10, shards=4)
    assert str(raised.value) == (
        "`shards`: got 4, expected a divisor of the 10 environments; change one of the two, so "
        "that every shard has the same number"
    )


def test_own_steps_are_those_of_the_ranks_columns() -> None:
    alive = torch.tensor([[True, True, True, True], [True, False, False, True]])
    values = torch.arange(6.0)
    assert Processes(rank=0, size=2).own(values, alive).tolist() == [0, 1, 4]
    assert Processes(rank=1, size=2).own(values, alive).tolist() == [2, 3, 5]


def half(arguments: list[str]) -> None:
    """The second of two processes ends in the middle of a training."""
    model = el.Reinforce("CartPole-v1", environments=4, stop_at=1e9)
    if not model.leads:
        model.learn(total_steps=100)
        os._exit(0)
    text = (
        "the other processes: got no answer, because one of them has exited, expected all of them "
        "to run until training ends; read the first error message; the policy trained so far is "
        "kept"
    )
    with pytest.raises(EligibilityError, match=f"^{text}$"):
        model.learn(total_steps=100_000)


def test_a_process_whose_partner_has_gone_says_so() -> None:
    together(2, half, [])
