"""The learning curve as a picture."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence

from eligibility.train.learner import Progress

_INK, _PALE, _LINE, _GOAL = "#1f2933", "#9fb3c8", "#0b69a3", "#c0392b"


def draw_curve(rows: Sequence[Progress], stop_at: float, title: str) -> bytes:
    """Return over steps, as PNG: each rollout, the mean of the last 100 episodes, the goal."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

    figure = Figure(figsize=(8, 4.5), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    steps = [row.steps for row in rows]
    marker = "o" if len(rows) <= 60 else None
    axes.plot(
        steps,
        [row.rollout_return for row in rows],
        color=_PALE,
        linewidth=1,
        marker=marker,
        markersize=4,
        label="mean of each rollout",
    )
    axes.plot(
        steps,
        [row.mean_return for row in rows],
        color=_LINE,
        linewidth=2.2,
        marker=marker,
        markersize=4,
        label="mean of the last 100 episodes",
    )
    if math.isfinite(stop_at):
        axes.axhline(stop_at, color=_GOAL, linewidth=1.2, linestyle=(0, (5, 3)))
        axes.annotate(
            f"stop at {stop_at:g}",
            (0, stop_at),
            (4, 3),
            textcoords="offset points",
            xycoords=("axes fraction", "data"),
            color=_GOAL,
            fontsize=9,
        )
    axes.set_title(title, loc="left", fontsize=12, fontweight="bold", color=_INK)
    axes.set_xlabel("environment steps", color=_INK)
    axes.set_ylabel("undiscounted return", color=_INK)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_xlim(left=0)
    axes.grid(color="#e4e7eb", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(_PALE)
    axes.tick_params(colors=_INK)
    axes.legend(loc="lower right", frameon=False, labelcolor=_INK)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()
