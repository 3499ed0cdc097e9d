"""One peer, one seed, in a process of its own: ``python -m benchmarks.peers NAME SEED ...``."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from benchmarks.peers.stopwatch import Stopwatch, watch
from benchmarks.peers.trainers import PEERS


def main() -> None:
    """Train until the stopwatch ends the process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=PEERS)
    parser.add_argument("seed", type=int)
    parser.add_argument("--goal", type=float, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--sources", type=Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    stopwatch = Stopwatch(arguments.goal, arguments.steps)
    watch(stopwatch)
    PEERS[arguments.name](arguments.seed, arguments.sources.resolve())
    stopwatch.finish(solved=False)  # it gave up by itself


if __name__ == "__main__":
    main()
