"""A benchmark as tables on a terminal."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table as Grid

from eligibility.bench.contestants import OURS
from eligibility.bench.linear import LinearTable
from eligibility.bench.logits import COPY, Benchmark, Table


def renderable(result: Benchmark) -> RenderableType:
    """All tables, and what took no part."""
    parts: list[RenderableType] = [_grid(table) for table in result.tables]
    parts += [linear_grid(table) for table in result.linear]
    if result.left_out:
        parts.append("Not measured:")
        parts += [f"  {name}: {why}" for name, why in result.left_out.items()]
    parts.append(
        f"/ {COPY}, / ours: time relative to a copy of the logits into reused memory, and to "
        f"{OURS};\npeak/NV: extra memory at the peak, in copies of the logits;\n"
        "error: of the gradient, relative rms, against float64"
    )
    speeds = ", ".join(
        f"{speed:.0f} GFLOP/s {dtype}"
        for dtype, speed in result.roofline.matmul_gflop_per_s.items()
    )
    parts.append(f"Roofline: {result.roofline.copy_gb_per_s:.1f} GB/s copied, {speeds} multiplied")
    noun = "thread" if result.threads == 1 else "threads"
    parts.append(
        f"{result.machine.processor}, {result.threads} {noun}, {result.clock}, "
        f"median of {result.rounds} rounds in which all take turns"
    )
    return Group(*parts)


def title(table: Table) -> str:
    """Dtype, size and objective in words."""
    bonus = f", with {table.entropy_coef:g} · entropy" if table.entropy_coef else ""
    size = table.size
    return f"{size.dtype} {size.rows} × {size.categories}{bonus}"


def _grid(table: Table) -> Grid:
    grid = Grid(title=title(table), title_justify="left", title_style="bold", box=SIMPLE_HEAD)
    grid.add_column("", no_wrap=True)
    for heading in ("ms", f"/ {COPY}", "/ ours", "peak/NV", "error"):
        grid.add_column(heading, justify="right")
    for figure in table.figures:
        ratio = table.slowdown(figure.name)
        grid.add_row(
            figure.name,
            f"{figure.milliseconds:.3f}",
            f"{figure.of_copy:.1f}",
            f"{ratio:.2f}",
            "" if figure.extra_peak is None else f"{figure.extra_peak:.2f}",
            "" if figure.gradient_error is None else f"{figure.gradient_error:.1e}",
            style="bold" if figure.name == OURS else "",
        )
    return grid


def linear_title(table: LinearTable) -> str:
    """N × V × D, and what else was asked."""
    bonus = f", with {table.entropy_coef:g} · entropy" if table.entropy_coef else ""
    size = table.size
    return f"{table.dtype} {size.tokens} × {size.vocabulary} × {size.features}{bonus}"


def linear_grid(table: LinearTable) -> Grid:
    """All methods through the linear layer at one size."""
    grid = Grid(
        title=linear_title(table), title_justify="left", title_style="bold", box=SIMPLE_HEAD
    )
    grid.add_column("", no_wrap=True)
    for heading in ("ms", "/ products", "peak MiB", "error"):
        grid.add_column(heading, justify="right")
    for figure in table.figures:
        peak = figure.extra_peak_mib
        grid.add_row(
            figure.method,
            f"{1e3 * figure.seconds:.1f}",
            f"{figure.ratio:.2f}",
            "" if peak is None else f"{peak:.0f}",
            f"{figure.gradient_error:.1e}",
            style="bold" if figure.method.startswith(OURS) else "",
        )
    return grid
