"""Time and memory of a policy-gradient step through the last layer of a language model.

Run it on one core, with nothing else on it:

    OMP_NUM_THREADS=1 taskset -c 1 python benchmarks/linear.py --dtype bfloat16

The yardstick is the three matrix products that no method can avoid: logits, the gradient of the
hidden states, the gradient of the weight. Every method computes the loss −mean(A log π(token)),
with ``--entropy`` minus 0.01 times the mean entropy, and both gradients. Time is process time, the
median of rounds in which the methods take turns; memory is the growth of the peak resident size in
a process of its own, the two gradients included.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import eligibility as el

Step = Callable[[Tensor, Tensor, Tensor, Tensor, float], Tensor]
CHUNKS = 8


@dataclass(frozen=True)
class Row:
    """One method: its loss against the exact one, and what it costs."""

    method: str
    seconds: float
    ratio: float  # to the three bare products, in the same rounds
    extra_peak_mib: float
    gradient_error: float  # of the hidden states, relative rms, against float32 inputs


def loss_of_logits(z: Tensor, token: Tensor, advantage: Tensor, beta: float) -> Tensor:
    """The sum over rows, in the dtype of the logits: what most programs do."""
    log_probs = z.log_softmax(-1)
    loss = -(advantage * log_probs.gather(-1, token[:, None])[:, 0].float()).sum()
    if beta:
        loss = loss + beta * (log_probs.exp() * log_probs).sum(-1).float().sum()
    return loss


def plain(h: Tensor, w: Tensor, token: Tensor, advantage: Tensor, beta: float) -> Tensor:
    """Logits, whole."""
    return loss_of_logits(functional.linear(h, w), token, advantage, beta) / len(token)


def plain_float32(h: Tensor, w: Tensor, token: Tensor, advantage: Tensor, beta: float) -> Tensor:
    """Logits, whole, and their softmax in float32."""
    z = functional.linear(h, w).float()
    return loss_of_logits(z, token, advantage, beta) / len(token)


def checkpointed(h: Tensor, w: Tensor, token: Tensor, advantage: Tensor, beta: float) -> Tensor:
    """Chunks of rows, whose logits are computed again in the backward pass."""

    def chunk(h: Tensor, token: Tensor, advantage: Tensor) -> Tensor:
        return loss_of_logits(functional.linear(h, w), token, advantage, beta)

    parts = zip(h.chunk(CHUNKS), token.chunk(CHUNKS), advantage.chunk(CHUNKS), strict=True)
    losses = [checkpoint(chunk, *part, use_reentrant=False) for part in parts]
    return torch.stack(losses).sum() / len(token)


def torch_fused(h: Tensor, w: Tensor, token: Tensor, advantage: Tensor, beta: float) -> Tensor:
    """torch's own linear_cross_entropy; it has no entropy."""
    from torch.nn.modules.linear_cross_entropy_options import LinearCrossEntropyOptions

    losses = functional.linear_cross_entropy(
        h, w, token, reduction="none", options=LinearCrossEntropyOptions()
    )
    return (advantage * losses.float()).mean()


def ours(h: Tensor, w: Tensor, token: Tensor, advantage: Tensor, beta: float) -> Tensor:
    """eligibility."""
    return el.linear_reinforce_loss(h, w, token, advantage, entropy_coef=beta)


def ours_per_token(h: Tensor, w: Tensor, token: Tensor, advantage: Tensor, beta: float) -> Tensor:
    """eligibility, when log-probabilities are wanted per token."""
    parts = el.linear_statistics(h, w, token)
    return -(advantage * parts.log_prob + beta * parts.entropy).mean()


METHODS: dict[str, Step] = {
    "plain logits": plain,
    "plain logits, float32 softmax": plain_float32,
    "chunks with checkpointing": checkpointed,
    "torch linear_cross_entropy": torch_fused,
    "eligibility linear_log_prob": ours_per_token,
    "eligibility linear_reinforce_loss": ours,
}


def inputs(arguments: argparse.Namespace) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Hidden states of unit variance and logits of unit variance."""
    generator = torch.Generator().manual_seed(0)
    dtype = getattr(torch, arguments.dtype)
    rows, vocabulary, features = arguments.size
    hidden = torch.randn(rows, features, generator=generator).to(dtype)
    weight = (torch.randn(vocabulary, features, generator=generator) / features**0.5).to(dtype)
    token = torch.randint(vocabulary, (rows,), generator=generator)
    advantage = torch.randn(rows, generator=generator)
    return hidden.requires_grad_(), weight.requires_grad_(), token, advantage


def step(method: Step, given: tuple[Tensor, Tensor, Tensor, Tensor], beta: float) -> None:
    """Forward and backward from empty gradients."""
    given[0].grad = given[1].grad = None
    method(*given, beta).backward()


def three_products(hidden: Tensor, weight: Tensor) -> None:
    """What cannot be avoided; the logits stand in for their gradient."""
    with torch.no_grad():
        z = hidden @ weight.t()
        _ = z @ weight
        _ = z.t() @ hidden


def seconds(call: Callable[[], None]) -> float:
    """Process time of one call."""
    start = time.process_time()
    call()
    return time.process_time() - start


def resident(field: str) -> float:
    """A size of this process in MiB, from the kernel's own account."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    raise SystemExit("memory is measured on Linux only; pass --no-memory")


def measure_memory(arguments: argparse.Namespace) -> None:
    """Print the growth of the peak resident size during one step, in this process."""
    given = inputs(arguments)
    small = tuple(x[:2].detach().requires_grad_(x.is_floating_point()) for x in given)
    method = METHODS[arguments.memory_of]
    step(method, (small[0], small[1], small[2] % 2, small[3].detach()), arguments.beta)
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    step(method, given, arguments.beta)
    print(resident("VmHWM") - before)


def peak_of(name: str, argv: list[str]) -> float:
    """`measure_memory` in a fresh process."""
    command = [sys.executable, __file__, *argv, "--memory-of", name]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def measure(arguments: argparse.Namespace, argv: list[str]) -> list[Row]:
    """Every method, taking turns with the bare products."""
    given = inputs(arguments)
    names = [name for name in METHODS if not (arguments.beta and METHODS[name] is torch_fused)]
    if arguments.only:
        names = [name for name in names if arguments.only in name]
    exact = tuple(x.detach().float().requires_grad_() for x in given[:2])
    step(plain, (*exact, *given[2:]), arguments.beta)
    truth = exact[0].grad
    assert truth is not None
    times: dict[str, list[float]] = {name: [] for name in ("products", *names)}
    errors = {}
    for round_number in range(arguments.rounds + 1):
        elapsed = {"products": seconds(lambda: three_products(*given[:2]))}
        for name in names:
            elapsed[name] = seconds(lambda name=name: step(METHODS[name], given, arguments.beta))
            found = given[0].grad.float()
            errors[name] = float((found - truth).norm() / truth.norm())
        if round_number:  # the first one warms up
            for name, value in elapsed.items():
                times[name].append(value)
    base = times["products"]
    rows = [Row("three bare products", statistics.median(base), 1.0, 0.0, 0.0)]
    for name in names:
        ratio = statistics.median(a / b for a, b in zip(times[name], base, strict=True))
        peak = peak_of(name, argv) if arguments.measure_memory else float("nan")
        rows.append(Row(name, statistics.median(times[name]), ratio, peak, errors[name]))
    return rows


def processor() -> str:
    """The processor's name, where the system tells it."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    return next((x.split(":")[1].strip() for x in lines if "model name" in x), platform.machine())


def main(argv: list[str]) -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], default="bfloat16")
    parser.add_argument("--size", type=int, nargs=3, metavar=("N", "V", "D"))
    parser.add_argument("--entropy", dest="beta", action="store_const", const=0.01, default=0.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", help="measure the methods whose name contains this")
    parser.add_argument("--no-memory", dest="measure_memory", action="store_false")
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help="write the rows as JSON to this file")
    parser.set_defaults(size=[2048, 32768, 1024])
    arguments = parser.parse_args(argv)
    torch.set_num_threads(1)
    if arguments.memory_of:
        measure_memory(arguments)
        return
    rows = measure(arguments, argv)
    print(f"{'':36}seconds   ratio  peak MiB  gradient error")
    for row in rows:
        print(
            f"{row.method:36}{row.seconds:7.3f} {row.ratio:7.3f} {row.extra_peak_mib:9.0f}"
            f"  {row.gradient_error:.1e}"
        )
    if arguments.out:
        record = {
            "date": datetime.date.today().isoformat(),
            "processor": processor(),
            "threads": torch.get_num_threads(),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "eligibility": el.__version__,
            "dtype": arguments.dtype,
            "N, V, D": arguments.size,
            "entropy_coef": arguments.beta,
            "rounds": arguments.rounds,
            "rows": [asdict(row) for row in rows],
        }
        arguments.out.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
