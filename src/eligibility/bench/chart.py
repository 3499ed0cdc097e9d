"""A benchmark as a picture: the time of everyone as a multiple of what cannot be avoided."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from eligibility.bench.contestants import OURS
from eligibility.bench.logits import Benchmark
from eligibility.bench.rendering import linear_title, title
from eligibility.errors import InvalidValueError, MissingDependencyError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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


@dataclass(frozen=True)
class _Panel:
    """Bars of one table."""

    title: str
    unit: str
    ratios: dict[str, float]


def draw(result: Benchmark, suffix: str) -> bytes:
    """One panel a table, bars on a logarithmic axis, in the format that ``suffix`` names."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = _panels(result)
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(6.8 * columns, 2.9 * rows), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    for number, panel in enumerate(panels):
        _draw_panel(figure.add_subplot(rows, columns, number + 1), panel)
    buffer = io.BytesIO()
    figure.savefig(buffer, format=suffix.removeprefix("."))
    return buffer.getvalue()


def _panels(result: Benchmark) -> list[_Panel]:
    over_logits = [
        _Panel(
            title(table),
            "time, as a multiple of a copy of the logits",
            {figure.name: figure.of_copy for figure in table.figures},
        )
        for table in result.tables
    ]
    through_linear = [
        _Panel(
            linear_title(table),
            "time, as a multiple of the three bare matrix products",
            {figure.method: figure.ratio for figure in table.figures},
        )
        for table in result.linear
    ]
    return over_logits + through_linear


def _draw_panel(axes: Axes, panel: _Panel) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    names = sorted(panel.ratios, key=lambda name: panel.ratios[name], reverse=True)
    ratios = [panel.ratios[name] for name in names]
    colours = [_OURS if name.startswith(OURS) else _PALE for name in names]
    bars = axes.barh(names, ratios, color=colours)
    axes.bar_label(bars, [_digits(ratio) for ratio in ratios], padding=3, fontsize=8)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0,) if max(ratios) > 20 else (1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlim(0.5, 2.5 * max(ratios))
    axes.set_title(panel.title, loc="left", fontsize=9, fontweight="bold", color=_INK)
    axes.set_xlabel(panel.unit, fontsize=8, color=_INK)
    axes.tick_params(labelsize=8, colors=_INK)
    axes.spines[["top", "right"]].set_visible(False)


def _digits(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:.1f}" if ratio < 100 else f"{ratio:.0f}"
