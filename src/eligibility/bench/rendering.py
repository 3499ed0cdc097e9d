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
    parts: list[RenderableType] = [*map(grid, result.tables), *map(grid, result.linear)]
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


def title(table: Table | LinearTable) -> str:
    """Dtype, size and objective in words."""
    size = f"{table.dtype} {table.size}" if isinstance(table, LinearTable) else str(table.size)
    return f"{size}, with {table.entropy_coef:g} · entropy" if table.entropy_coef else size


def grid(table: Table | LinearTable) -> Grid:
    """All contestants at one size."""
    if isinstance(table, LinearTable):
        headings = ["ms", "/ products", "peak MiB", "error"]
        rows = {
            figure.method: [
                f"{1e3 * figure.seconds:.1f}",
                f"{figure.ratio:.2f}",
                _cell(figure.extra_peak_mib, ".0f"),
                f"{figure.gradient_error:.1e}",
            ]
            for figure in table.figures
        }
    else:
        headings = ["ms", f"/ {COPY}", "/ ours", "peak/NV", "error"]
        (ours,) = (figure.of_copy for figure in table.figures if figure.name == OURS)
        rows = {
            figure.name: [
                f"{figure.milliseconds:.3f}",
                f"{figure.of_copy:.1f}",
                f"{figure.of_copy / ours:.2f}",
                _cell(figure.extra_peak, ".2f"),
                _cell(figure.gradient_error, ".1e"),
            ]
            for figure in table.figures
        }
    found = Grid(title=title(table), title_justify="left", title_style="bold", box=SIMPLE_HEAD)
    found.add_column("", no_wrap=True)
    for heading in headings:
        found.add_column(heading, justify="right")
    for name, cells in rows.items():
        found.add_row(name, *cells, style="bold" if name.startswith(OURS) else "")
    return found


def _cell(number: float | None, form: str) -> str:
    return "" if number is None else format(number, form)
