"""A benchmark as tables on a terminal, and as a picture."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table as Grid

from eligibility.bench.contestants import OURS
from eligibility.bench.linear import LinearTable
from eligibility.bench.logits import COPY, Benchmark, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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


_INK, _PALE, _OURS = "#1f2933", "#9fb3c8", "#0b69a3"
FORMATS = (".png", ".svg", ".pdf")


def draw(result: Benchmark, suffix: str) -> bytes:
    """One panel a table, bars on a logarithmic axis, in the format that ``suffix`` names."""
    from matplotlib.figure import Figure

    tables: tuple[Table | LinearTable, ...] = (*result.tables, *result.linear)
    columns = min(2, len(tables))
    rows = -(-len(tables) // columns)
    figure = Figure(figsize=(6.8 * columns, 2.9 * rows), dpi=110, layout="constrained")
    for number, table in enumerate(tables, start=1):
        _draw_table(figure.add_subplot(rows, columns, number), table)
    buffer = io.BytesIO()
    figure.savefig(buffer, format=suffix.removeprefix("."))
    return buffer.getvalue()


def _draw_table(axes: Axes, table: Table | LinearTable) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    if isinstance(table, LinearTable):
        unit = "the three bare matrix products"
        ratio_of = {figure.method: figure.ratio for figure in table.figures}
    else:
        unit = "a copy of the logits"
        ratio_of = {figure.name: figure.of_copy for figure in table.figures}
    names = sorted(ratio_of, key=lambda name: ratio_of[name], reverse=True)
    ratios = [ratio_of[name] for name in names]
    colours = [_OURS if name.startswith(OURS) else _PALE for name in names]
    bars = axes.barh(names, ratios, color=colours)
    axes.bar_label(bars, [_digits(ratio) for ratio in ratios], padding=3, fontsize=8)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0,) if max(ratios) > 20 else (1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlim(0.5, 2.5 * max(ratios))
    axes.set_title(title(table), loc="left", fontsize=9, fontweight="bold", color=_INK)
    axes.set_xlabel(f"time, as a multiple of {unit}", fontsize=8, color=_INK)
    axes.tick_params(labelsize=8, colors=_INK)
    axes.spines[["top", "right"]].set_visible(False)


def _digits(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:.1f}" if ratio < 100 else f"{ratio:.0f}"
