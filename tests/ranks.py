"""Several processes with a process group between them, at the price of one start.

They come from a server that has imported everything once, and find in their environment what
torchrun would have put there.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import socket
import traceback
from collections.abc import Callable
from multiprocessing.queues import SimpleQueue

import torch

Function = Callable[[list[str]], None]


def together(number: int, function: Function, arguments: list[str]) -> None:
    """Call the function in `number` processes; AssertionError if it raises or exits in one."""
    context = multiprocessing.get_context("forkserver")
    # There is one server in a process, and what it imports is settled when it starts.
    context.set_forkserver_preload(
        [
            "eligibility.train.run_folder",
            "tests.train.shared_training",
            "tests.ops.vocab_parallel_rank",
            "tests.ops.processes_rank",
        ]
    )
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    errors = context.SimpleQueue()
    ranks = [
        context.Process(target=as_rank, args=(rank, number, port, function, arguments, errors))
        for rank in range(number)
    ]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(120)
    said = [] if errors.empty() else [errors.get()]
    assert [process.exitcode for process in ranks] == [0] * number, "".join(said)


def as_rank(
    rank: int,
    number: int,
    port: int,
    function: Function,
    arguments: list[str],
    errors: SimpleQueue[str],
) -> None:
    """One of the processes."""
    torch.set_num_threads(1)
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ |= {**address, "RANK": str(rank), "WORLD_SIZE": str(number)}
    try:
        with contextlib.redirect_stdout(None), contextlib.redirect_stderr(None):
            function(arguments)
        torch.distributed.destroy_process_group()  # no atexit here
    except BaseException:  # whatever ends it: the test shows it
        errors.put(f"rank {rank}: {traceback.format_exc()}")
        raise
