"""How long `explain` takes on a graph of a thousand nodes.

    python benchmarks/explain_thousand.py

Seconds of processor time, median of five: the forward pass alone and recorded, one backward pass
of torch's own, the explanation with and without a recording, and its text. Prints JSON.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable

import torch

import eligibility as el


def forward() -> torch.Tensor:
    """250 recurrent steps of four operations and a sum: 1001 nodes."""
    weight = torch.randn(8, 8).requires_grad_()
    state = torch.randn(1, 8)
    for _ in range(250):
        state = torch.tanh(state @ weight.t() + state)
    return state.sum()


def recorded() -> torch.Tensor:
    with el.record():
        return forward()


def median_seconds(prepare: Callable[[], object], run: Callable[..., object]) -> float:
    times = []
    for _ in range(5):
        prepared = prepare()
        started = time.process_time()
        run(prepared)
        times.append(time.process_time() - started)
    return round(statistics.median(times), 4)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    el.explain(recorded())  # imports and first calls are not counted
    text = el.explain(recorded()).text()
    print(
        json.dumps(
            {
                "torch": torch.__version__,
                "nodes": 1001,
                "forward": median_seconds(lambda: None, lambda _: forward()),
                "forward_recorded": median_seconds(lambda: None, lambda _: recorded()),
                "backward": median_seconds(forward, lambda output: output.backward()),
                "explain_recorded": median_seconds(recorded, el.explain),
                "explain_unrecorded": median_seconds(unrecorded, el.explain),
                "text": median_seconds(lambda: el.explain(recorded()), lambda e: e.text()),
                "lines_of_text": len(text.splitlines()),
            },
            indent=1,
        )
    )


def unrecorded() -> torch.Tensor:
    el.record()  # an empty recording takes the place of the last one
    return forward()


if __name__ == "__main__":
    main()
