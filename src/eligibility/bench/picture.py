"""A benchmark as a picture: the time of everyone as a multiple of a copy of the logits."""

from __future__ import annotations

import io
from pathlib import Path

from eligibility.bench.contestants import OURS
from eligibility.bench.logits import Benchmark
from eligibility.bench.terminal import title
from eligibility.errors import InvalidValueError, MissingDependencyError

_INK, _PALE, _OURS = "#1f2933", "#9fb3c8", "#0b69a3"
FORMATS = (".png", ".svg", ".pdf")


def check_format(path: Path) -> None:
    """Raise unless ``path`` ends in a format that can be drawn, and something can draw."""
    if path.suffix not in FORMATS:
        raise InvalidValueError(
            "`--plot`", repr(path.name), f"a name that ends in {', '.join(FORMATS)}", "rename it"
        )
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise MissingDependencyError(
            "`--plot`", "no matplotlib", "matplotlib", "pip install 'eligibility[train]'"
        ) from error
    del mpl


def draw(result: Benchmark, suffix: str) -> bytes:
    """One panel a table, bars on a logarithmic axis, in the format that ``suffix`` names."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

    columns = min(2, len(result.tables))
    rows = -(-len(result.tables) // columns)
    figure = Figure(figsize=(6.4 * columns, 2.6 * rows), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    for number, table in enumerate(result.tables):
        axes = figure.add_subplot(rows, columns, number + 1)
        figures = sorted(table.figures, key=lambda figure: figure.of_copy, reverse=True)
        ratios = [figure.of_copy for figure in figures]
        names = [figure.name for figure in figures]
        colours = [_OURS if name == OURS else _PALE for name in names]
        bars = axes.barh(names, ratios, color=colours)
        axes.bar_label(bars, [f"{ratio:.1f}" for ratio in ratios], padding=3, fontsize=8)
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.set_xlim(0.5, 2.5 * max(ratios))
        axes.set_title(title(table), loc="left", fontsize=9, fontweight="bold", color=_INK)
        axes.tick_params(labelsize=8, colors=_INK)
        axes.spines[["top", "right"]].set_visible(False)
    figure.supxlabel("time, as a multiple of a copy of the logits", fontsize=9, color=_INK)
    buffer = io.BytesIO()
    figure.savefig(buffer, format=suffix.removeprefix("."))
    return buffer.getvalue()
