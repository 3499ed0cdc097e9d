"""A benchmark as tables on a terminal."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table as Grid

from eligibility.bench.contestants import OURS
from eligibility.bench.logits import COPY, Benchmark, Table


def renderable(result: Benchmark) -> RenderableType:
    """All tables, and what took no part."""
    parts: list[RenderableType] = [_grid(table) for table in result.tables]
    if result.left_out:
        parts.append("Not measured:")
        parts += [f"  {name}: {why}" for name, why in result.left_out.items()]
    parts.append(
        f"/ {COPY}, / ours: time beside a copy of the logits into reused memory, and beside "
        f"{OURS};\npeak/NV: extra memory at the peak, in copies of the logits;\n"
        "error: of the gradient, relative rms, against float64"
    )
    noun = "thread" if result.threads == 1 else "threads"
    parts.append(
        f"{result.machine.processor}, {result.threads} {noun}, {result.clock}, "
        f"median of {result.rounds} rounds in which all take turns"
    )
    return Group(*parts)


def title(table: Table) -> str:
    """Dtype, size and objective in words."""
    bonus = f", with {table.entropy_coef:g} · entropy" if table.entropy_coef else ""
    case = table.case
    return f"{case.dtype} {case.rows} × {case.categories}{bonus}"


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
