"""A benchmark as a picture: the time of everyone as a multiple of what cannot be avoided."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from eligibility.bench.contestants import OURS
from eligibility.bench.linear import LinearTable
from eligibility.bench.logits import Benchmark, Table
from eligibility.bench.rendering import title

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_INK, _PALE, _OURS = "#1f2933", "#9fb3c8", "#0b69a3"
FORMATS = (".png", ".svg", ".pdf")


def draw(result: Benchmark, suffix: str) -> bytes:
    """One panel a table, bars on a logarithmic axis, in the format that ``suffix`` names."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    tables: tuple[Table | LinearTable, ...] = (*result.tables, *result.linear)
    columns = min(2, len(tables))
    rows = -(-len(tables) // columns)
    figure = Figure(figsize=(6.8 * columns, 2.9 * rows), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
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
