"""What every policy-gradient step does: sample, log_prob, backward, for a few actions.

For K = 4 actions and N = 64 states: construct the distribution from logits or from probs, sample,
take log_prob, and run the backward pass of −mean(A log_prob), with `eligibility.Categorical` and
torch's own, each with and without validation. Then the same at several sizes with
`categorical_sample`, which draws and takes log_prob in one pass, against what people write by hand.
The contestants take turns; a ratio is the median of the ratios within one round, so that what else
the machine does meets both sides of it. The clock is that of the process, which has one thread:
others do not lengthen it. About one minute on a quiet machine.

    OMP_NUM_THREADS=1 taskset -c 1 python benchmarks/hot_path.py [--rounds N]

The result, with date, machine and versions, goes to benchmarks/results/.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

import eligibility as el
from eligibility.bench.measurement import Times, times_in_turn

STATES, ACTIONS = 64, 4
SIZES = ((1, 2), (8, 4), (64, 8), (256, 64), (256, 1024))
OURS = "categorical_sample"
VALIDATION = {"validated": True, "unvalidated": False}
RESULT = Path(__file__).parent / "results" / "hot_path.json"


def step(cls: type, by: str, validate: bool) -> Callable[[], Tensor]:
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


def measure(by: str, rounds: int) -> Times:
    """One step of each contestant."""
    owners = {"eligibility": el.Categorical, "torch": torch.distributions.Categorical}
    runs = {
        f"{owner}, {validation}": step(cls, by, validate)
        for owner, cls in owners.items()
        for validation, validate in VALIDATION.items()
    }
    return times_in_turn(runs, rounds, time.process_time)


def sampling_steps(states: int, actions: int) -> dict[str, Callable[[], Tensor]]:
    """Sample, log_prob and backward, by hand, by torch's distribution and by one operation."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(states, actions, generator=generator).requires_grad_()
    advantage = torch.randn(states, generator=generator)

    def gradient(log_prob: Tensor) -> Tensor:
        return torch.autograd.grad(-(advantage * log_prob).mean(), logits)[0]

    def distribution(validate: bool) -> Tensor:
        dist = torch.distributions.Categorical(logits=logits, validate_args=validate)
        return gradient(dist.log_prob(dist.sample()))

    def by_hand() -> Tensor:
        action = torch.multinomial(logits.detach().softmax(-1), 1)[:, 0]
        return gradient(-functional.cross_entropy(logits, action, reduction="none"))

    return {
        "Categorical": lambda: distribution(True),
        "Categorical, unvalidated": lambda: distribution(False),
        "multinomial + cross_entropy": by_hand,
        OURS: lambda: gradient(el.categorical_sample(logits)[1]),
    }


def measure_sampling(rounds: int) -> dict[str, dict[str, dict[str, float]]]:
    """Size -> median microseconds, and how many times as fast `categorical_sample` is."""
    found = {}
    for states, actions in SIZES:
        times = times_in_turn(sampling_steps(states, actions), rounds, time.process_time)
        found[f"{states} × {actions}"] = {
            "median_microseconds": microseconds(times),
            "times_as_fast": {
                name: round(times.ratio(name, OURS), 2) for name in times.seconds if name != OURS
            },
        }
    return found


def microseconds(times: Times) -> dict[str, float]:
    """Contestant -> median of one step."""
    return {name: round(1e6 * times.median(name), 1) for name in times.seconds}


def ratios(times: Times) -> dict[str, float]:
    """How many times as fast as torch: ours and theirs, validated and not, all four pairs."""
    return {
        f"{ours} / torch, {theirs}": times.ratio(f"torch, {theirs}", f"eligibility, {ours}")
        for ours in VALIDATION
        for theirs in VALIDATION
    }


def main() -> None:
    """Measure, print a table, write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=200)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    record: dict[str, Any] = {
        "date": f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC",
        "system": platform.platform(),
        "cores": os.cpu_count(),
        "load_average": os.getloadavg(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "states": STATES,
        "actions": ACTIONS,
        "rounds": rounds,
    }
    for by in ("logits", "probs"):
        times = measure(by, rounds)
        medians = microseconds(times)
        faster = {name: round(ratio, 2) for name, ratio in ratios(times).items()}
        record[by] = {"median_microseconds": medians, "times_as_fast": faster}
        print(f"from {by}:")
        for name, taken in medians.items():
            print(f"  {name:34} {taken:8.1f} µs")
        for name, ratio in faster.items():
            print(f"  {name:34} {ratio:8.2f} times as fast")
    record["sampling"] = measure_sampling(rounds)
    for size, figures in record["sampling"].items():
        print(f"sampled, {size}:")
        for name, taken in figures["median_microseconds"].items():
            ratio = figures["times_as_fast"].get(name, 1.0)
            print(f"  {name:34} {taken:8.1f} µs {ratio:8.2f}")
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    print(f"written to {RESULT}")


if __name__ == "__main__":
    main()
