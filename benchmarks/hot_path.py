"""What every policy-gradient step does: sample, log_prob, backward, for a few actions.

For K = 4 actions and N = 64 states: construct the distribution from logits or from probs, sample,
take log_prob, and run the backward pass of −mean(A log_prob), with `eligibility.Categorical` and
torch's own, each with and without validation. The contestants take turns, so that what else the
machine does meets all of them; the medians over many rounds are compared.

    taskset -c 1 python benchmarks/hot_path.py [--rounds N] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

import eligibility as el

STATES, ACTIONS = 64, 4
CALLS = 50  # in a row, so that the clock's own time does not show


def step(cls: type, by: str, validate: bool | None) -> Callable[[], Tensor]:
    """One step of a policy whose output is a leaf: everything else is left out."""
    generator = torch.Generator().manual_seed(0)
    output = torch.rand(STATES, ACTIONS, generator=generator).requires_grad_()
    advantage = torch.randn(STATES, generator=generator)

    def run() -> Tensor:
        dist = cls(**{by: output}, validate_args=validate)
        log_prob = dist.log_prob(dist.sample())
        (gradient,) = torch.autograd.grad(-(advantage * log_prob).mean(), output)
        return gradient

    return run


def contestants() -> dict[str, Callable[[], Tensor]]:
    """Name -> what is timed."""
    stock = torch.distributions.Categorical
    return {
        f"{by}, {owner}, {'with' if validate else 'without'} validation": step(cls, by, validate)
        for by in ("logits", "probs")
        for owner, cls in (("eligibility", el.Categorical), ("torch", stock))
        for validate in (True, False)
    }


def measure(rounds: int) -> dict[str, float]:
    """Name -> median microseconds of one step."""
    runs = contestants()
    times: dict[str, list[float]] = {name: [] for name in runs}
    for repetition in range(rounds + 3):
        for name, run in runs.items():
            start = time.perf_counter()
            for _ in range(CALLS):
                run()
            if repetition >= 3:  # the first ones warm up
                times[name].append((time.perf_counter() - start) / CALLS * 1e6)
    return {name: statistics.median(values) for name, values in times.items()}


def ratios(medians: dict[str, float]) -> dict[str, float]:
    """How many times faster than torch with the same arguments; more than 1 is faster."""
    return {
        name: medians[name.replace("eligibility", "torch")] / microseconds
        for name, microseconds in medians.items()
        if "eligibility" in name
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    medians = measure(arguments.rounds)
    faster = ratios(medians)
    for name, microseconds in medians.items():
        beside = f"   {faster[name]:.2f} x as fast as torch's" if name in faster else ""
        print(f"{name:42} {microseconds:7.1f} µs{beside}")
    if arguments.json:
        record = {
            "torch": torch.__version__,
            "python": platform.python_version(),
            "states": STATES,
            "actions": ACTIONS,
            "microseconds": medians,
            "times_as_fast": faster,
        }
        arguments.json.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
