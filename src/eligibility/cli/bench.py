"""``eligibility bench``: how fast is it here, compared with what else is installed?"""

from __future__ import annotations

import json
import math
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from eligibility.cli.plot import check_picture
from eligibility.errors import InvalidValueError


def bench(
    sizes: Annotated[
        str | None, typer.Option(help='Rows x categories, for instance "256x4 256x1024".')
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(help="Dtype for --sizes and --linear: float32 (the default) or bfloat16."),
    ] = None,
    linear: Annotated[
        str | None,
        typer.Option(help='Also tokens x vocabulary x features, for instance "512x8192x256".'),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Three small sizes without torch.compile, in seconds.")
    ] = False,
    rounds: Annotated[
        int, typer.Option(help="Number of rounds; all contestants take turns in each.")
    ] = 9,
    budget: Annotated[
        float | None, typer.Option(help="Start no new round of a size after this many seconds.")
    ] = None,
    threads: Annotated[int, typer.Option(help="Number of threads.")] = 1,
    with_compile: Annotated[
        bool, typer.Option("--compile/--no-compile", help="Also measure torch.compile.")
    ] = True,
    backends: Annotated[
        bool, typer.Option("--backends", help="Show which backend serves which logits, and exit.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write the result as JSON.")] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the result as .png, .svg or .pdf.")
    ] = None,
) -> None:
    """Measure the policy gradient over logits: time relative to a copy, memory, error.

    Every contestant computes the loss −mean(A · log π(a)), once without and once with an entropy
    bonus, and its gradient. A copy of the logits is the roofline; through the linear layer, with
    --linear, it is the three matrix products.
    """
    from eligibility.bench.linear import read_size
    from eligibility.bench.logits import QUICK_SIZES, SIZES, measure, read_sizes

    if backends:
        _print_backends(as_json)
        return
    if sizes is None and linear is None and dtype is not None:
        raise InvalidValueError(
            "`--dtype`", "no --sizes", "both", "add --sizes, for instance 256x1024"
        )
    if dtype not in (None, "float32", "bfloat16"):
        raise InvalidValueError("`--dtype`", repr(dtype), "float32 or bfloat16", "choose one")
    chosen = QUICK_SIZES if quick else SIZES
    measured = chosen if sizes is None else read_sizes(sizes, dtype or "float32")
    if plot is not None:
        from eligibility.bench.rendering import FORMATS, draw

        check_picture("--plot", plot, FORMATS)
    from eligibility.files import check_writable, write_atomically

    for size in measured:
        _check_memory(size.rows * size.categories)
    if out is not None:
        check_writable(out)
    result = measure(
        measured,
        rounds=rounds,
        budget=math.inf if budget is None else budget,
        threads=threads,
        with_compile=with_compile and not quick,
        linear=None if linear is None else read_size(linear),
        linear_dtype=dtype or "float32",
        progress=lambda line: typer.echo(f"measuring {line}", err=True),
    )
    text = json.dumps(asdict(result), indent=2) + "\n"
    if out is not None:
        write_atomically(out, text)
    if plot is not None:
        write_atomically(plot, draw(result, plot.suffix))
    if as_json:
        sys.stdout.write(text)
    else:
        from rich.console import Console

        from eligibility.bench.rendering import renderable

        Console().print(renderable(result))


def _check_memory(numbers: int) -> None:
    """Raise unless that number of logits, with a gradient and a copy of each, fit."""
    needed, there = 4 * 4 * numbers, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > there:
        raise InvalidValueError(
            "`--sizes`",
            f"logits that need {needed / 2**30:,.0f} GiB",
            f"what fits into the {there / 2**30:.0f} GiB of this machine",
            "choose smaller ones",
        )


def _print_backends(as_json: bool) -> None:
    from eligibility.ops.backends.selection import describe

    found = describe()
    lines = [f"{device}: {backend}" for device, backend in found.items()]
    typer.echo(json.dumps(found) if as_json else "\n".join(lines))
