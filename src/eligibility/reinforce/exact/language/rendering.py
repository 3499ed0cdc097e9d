"""A comparison as a table and as a picture; nothing is computed here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from eligibility.errors import MissingDependencyError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from eligibility.reinforce.exact.language.comparison import Comparison, EstimatorError

# heading, what a row shows
_COLUMNS = (
    ("bias", "{0.bias:.3f}"),
    ("length", "{0.length:.3f}"),
    ("angle", "{0.angle:.1f}°"),
    ("variance", "{0.variance:.2f}"),
    ("mse", "{0.mse:.2f}"),
    ("rescaled", "{0.rescaled_mse:.3f}"),
)
_PANELS = (
    ("bias", "bias  ‖E g − g*‖ / ‖g*‖"),
    ("variance", "variance / ‖g*‖²"),
    ("rescaled_mse", "mean squared error at the best scale / ‖g*‖²"),
)
_DASHES = ("-", "--", "-.", ":")


def table(comparison: Comparison) -> str:
    """Blocks of one drift and group size, a row an estimator."""
    blocks: dict[tuple[float, int], list[EstimatorError]] = {}
    for error in comparison.errors:
        blocks.setdefault((error.drift, error.group_size), []).append(error)
    return "\n\n".join(_block(rows) for rows in blocks.values())


def _block(rows: list[EstimatorError]) -> str:
    first = rows[0]
    cells = [["", *(name for name, _ in _COLUMNS)]]
    cells += [[row.estimator, *(form.format(row) for _, form in _COLUMNS)] for row in rows]
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    lines = [
        line[0].ljust(widths[0])
        + "".join(f"  {cell:>{width}}" for cell, width in zip(line[1:], widths[1:], strict=True))
        for line in cells
    ]
    title = (
        f"drift {first.drift:g} (KL(π‖μ) = {first.behaviour_kl:.4f}), "
        f"{first.group_size} answers a prompt"
    )
    return "\n".join([title, lines[0], "─" * len(lines[0]), *lines[1:]])


def figure(comparison: Comparison, path: str | Path | None) -> Figure:
    """Three panels; one line an estimator."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as missing:
        raise MissingDependencyError(
            "`Comparison.plot`", "no matplotlib", "matplotlib", "pip install 'eligibility[train]'"
        ) from missing
    over_drift = len({error.drift for error in comparison.errors}) > 1
    drawn = Figure(figsize=(13, 4.2), dpi=110, layout="constrained")
    FigureCanvasAgg(drawn)
    lines: dict[tuple[str, int | float], list[EstimatorError]] = {}
    for error in comparison.errors:
        fixed = error.group_size if over_drift else error.drift
        lines.setdefault((error.estimator, fixed), []).append(error)
    several = len({fixed for _, fixed in lines}) > 1
    for axes, (field, title) in zip(drawn.subplots(1, len(_PANELS)), _PANELS, strict=True):
        for number, ((name, fixed), errors) in enumerate(lines.items()):
            x = [error.drift if over_drift else error.group_size for error in errors]
            label = f"{name}, G = {fixed}" if several else name
            style = _DASHES[number // 10 % len(_DASHES)]
            axes.plot(x, [getattr(e, field) for e in errors], style, marker="o", ms=3, label=label)
        axes.set_title(title, loc="left", fontsize=10)
        axes.set_xlabel("drift of the behaviour" if over_drift else "answers a prompt")
        axes.grid(color="#e4e7eb", linewidth=0.8)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_ylim(bottom=0)
    handles, labels = drawn.axes[0].get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside right center", frameon=False, fontsize=9)
    if path is not None:
        drawn.savefig(path)
    return drawn
