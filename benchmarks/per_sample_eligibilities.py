"""Every weight's eligibility for every sample: time and memory against the peers, in one run.

    python benchmarks/per_sample_eligibilities.py [--rounds 5] [--out benchmarks/results/…json]

Peers: ``torch.func.vmap(grad)``, Opacus (``GradSampleModule``) and BackPACK (``BatchGrad``,
``SumGradSquared``); what is not installed is left out and named. Each measurement is a process of
its own on one thread: the median of its repetitions, and the peak of its resident memory above
what it held before. A round measures all of them once; the ratios are to torch.func, medians over
rounds. Two tasks:

* ``gradients``: every per-sample gradient, as a tensor ``[N, *shape]`` a parameter;
* ``second moment``: ``E[e²]`` of every weight, each peer by its own shortest way.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from datetime import datetime, timezone
from functools import partial
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

RESULTS = Path(__file__).parent / "results" / "per_sample_eligibilities.json"
SAMPLES = 256
TASKS = ("gradients", "second moment")


def mlp() -> tuple[nn.Module, Tensor]:
    """Two hidden layers of 256: 88k weights."""
    layers = [nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 18)]
    return nn.Sequential(*layers), torch.randn(SAMPLES, 64)


def convnet() -> tuple[nn.Module, Tensor]:
    """Four frames of 42 × 42, two convolutions, one hidden layer: 222k weights."""
    layers = [
        nn.Conv2d(4, 16, 8, stride=4, padding=2), nn.ReLU(),
        nn.Conv2d(16, 32, 4, stride=2, padding=1), nn.ReLU(),
        nn.Flatten(), nn.Linear(32 * 5 * 5, 256), nn.ReLU(), nn.Linear(256, 18),
    ]  # fmt: skip
    return nn.Sequential(*layers), torch.randn(SAMPLES, 4, 42, 42)


NETWORKS = {"mlp": mlp, "convnet": convnet}


# A run is (inputs, action, task) → the result; a method makes one from a module, off the clock.
Run: TypeAlias = Callable[[Tensor, Tensor, str], Any]


def eligibility_run(module: nn.Module, *, verify: bool = True) -> Run:
    """The factors, then multiplied out or squared."""
    import eligibility as el

    def run(x: Tensor, action: Tensor, task: str) -> Any:
        result = el.per_sample_eligibilities(module, x, action, verify=verify)
        return result.materialize() if task == "gradients" else result.second_moment()

    return run


def torch_func_run(module: nn.Module) -> Run:
    """The recipe of torch's documentation."""
    parameters = {name: p.detach() for name, p in module.named_parameters()}

    def loss(values: dict[str, Tensor], sample: Tensor, choice: Tensor) -> Tensor:
        logits = functional_call(module, values, (sample[None],))
        return cross_entropy(logits, choice[None])

    def run(x: Tensor, action: Tensor, task: str) -> Any:
        gradients = vmap(grad(loss), in_dims=(None, 0, 0))(parameters, x, action)
        if task == "gradients":
            return gradients
        return {name: gradient.square().mean(0) for name, gradient in gradients.items()}

    return run


def opacus_run(module: nn.Module) -> Run:
    """Per-sample gradients by the hooks of a wrapped module."""
    from opacus import GradSampleModule

    wrapped = GradSampleModule(module, loss_reduction="sum")

    def run(x: Tensor, action: Tensor, task: str) -> Any:
        wrapped.zero_grad(set_to_none=True)
        cross_entropy(wrapped(x), action, reduction="sum").backward()
        if task == "gradients":
            return [p.grad_sample for p in wrapped.parameters()]
        return [p.grad_sample.square().mean(0) for p in wrapped.parameters()]

    return run


def backpack_run(module: nn.Module) -> Run:
    """Its extension for either task."""
    from backpack import backpack, extend, extensions

    extended, loss = extend(module), extend(nn.CrossEntropyLoss(reduction="sum"))

    def run(x: Tensor, action: Tensor, task: str) -> Any:
        extended.zero_grad(set_to_none=True)
        gradients = task == "gradients"
        with backpack(extensions.BatchGrad() if gradients else extensions.SumGradSquared()):
            loss(extended(x), action).backward()
        if gradients:
            return [p.grad_batch for p in extended.parameters()]
        return [p.sum_grad_squared / len(x) for p in extended.parameters()]

    return run


METHODS: dict[str, Callable[[nn.Module], Run]] = {
    "torch.func": torch_func_run,
    "opacus": opacus_run,
    "backpack": backpack_run,
    "eligibility": eligibility_run,
    # Without the check that the rows are the samples, which the peers do not make either.
    "eligibility, verify=False": partial(eligibility_run, verify=False),
}


def measure(method: str, network: str, task: str, repetitions: int = 7) -> dict[str, float]:
    """In this process: median seconds, and the peak of resident memory in MiB."""
    warnings.simplefilter("ignore")  # of the peers' own making
    torch.set_num_threads(1)
    torch.manual_seed(0)
    module, x = NETWORKS[network]()
    action = torch.randint(18, (SAMPLES,))
    run = METHODS[method](module)
    run(x[:2], action[:2], task)  # first use of every code path
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
    run(x, action, task)
    peak = resident("VmHWM") - before
    seconds = []
    for _ in range(repetitions):
        start = time.perf_counter()
        run(x, action, task)
        seconds.append(time.perf_counter() - start)
    return {"seconds": statistics.median(seconds), "peak_mib": peak}


def resident(field: str) -> float:
    """A field of the process's memory status, MiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    raise KeyError(field)


def check_agreement() -> None:
    """Theirs and ours are the same numbers, up to float32 rounding of one backward."""
    for network in NETWORKS:
        torch.manual_seed(0)
        module, x = NETWORKS[network]()
        action = torch.randint(18, (SAMPLES,))
        wanted = torch_func_run(module)(x, action, "second moment")
        got = eligibility_run(module)(x, action, "second moment")
        for name, moment in wanted.items():
            torch.testing.assert_close(got[name], moment, rtol=1e-4, atol=1e-9)


def in_a_process(method: str, network: str, task: str) -> dict[str, float]:
    """One measurement in a fresh interpreter."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--measure", method, network, task]
    output = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(output.stdout.splitlines()[-1])


def installed() -> tuple[list[str], list[str]]:
    """The methods that can run here, and the peers that are missing."""
    missing = [name for name in ("opacus", "backpack") if find_spec(name) is None]
    return [name for name in METHODS if name not in missing], missing


def run_all(rounds: int) -> dict[str, Any]:
    """Every method on every network and task, ``rounds`` times, and the medians."""
    check_agreement()
    methods, missing = installed()
    table = []
    for network in NETWORKS:
        for task in TASKS:
            runs = {method: [] for method in methods}
            for _ in range(rounds):
                for method in methods:
                    runs[method].append(in_a_process(method, network, task))
            for method in methods:
                table.append(summary(network, task, method, runs))
                print(
                    "{network:8} {task:14} {method:26} {ms:9.2f} ms {peak_mib:8.1f} MiB   "
                    "time ×{time_ratio:.2f}  memory ×{memory_ratio:.2f}".format(**table[-1])
                )
    packages = ("torch", "opacus", "backpack-for-pytorch")
    versions = {name: metadata.version(name) for name in packages if name not in missing}
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "machine": {"processor": processor(), "python": platform.python_version(), "threads": 1},
        "versions": versions,
        "missing": missing,
        "samples": SAMPLES,
        "rounds": rounds,
        "table": table,
    }  # fmt: skip


def summary(
    network: str, task: str, method: str, runs: dict[str, list[dict[str, float]]]
) -> dict[str, Any]:
    """Medians, and the median over rounds of the ratio to torch.func of the same round."""
    own, reference = runs[method], runs["torch.func"]

    def median(field: str) -> float:
        return statistics.median(run[field] for run in own)

    def ratio(field: str) -> float:
        pairs = zip(own, reference, strict=True)
        return statistics.median(run[field] / other[field] for run, other in pairs)

    return {
        "network": network,
        "task": task,
        "method": method,
        "ms": 1000 * median("seconds"),
        "peak_mib": median("peak_mib"),
        "time_ratio": ratio("seconds"),
        "memory_ratio": ratio("peak_mib"),
    }


def processor() -> str:
    """The processor's name."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--measure", nargs=3, metavar=("METHOD", "NETWORK", "TASK"))
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(*options.measure)))
        return
    result = run_all(options.rounds)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    for name in result["missing"]:
        print(f"not installed, left out: {name}")
    print(f"written: {options.out}")


if __name__ == "__main__":
    main()
