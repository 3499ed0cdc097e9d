"""Learning curves as pictures."""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np

from eligibility.train.progress import Progress
from eligibility.train.statistics import Array, units

if TYPE_CHECKING:
    from eligibility.train.comparison import Comparison

_GROUPS = ("#0b69a3", "#c05621", "#2f855a", "#6b46c1", "#b83280", "#718096")
# Characters of a name that fits into the axes, and of a line below them; inches of such a line.
_SHORT, _WIDE, _ROW = 60, 110, 0.2
_INK, _PALE, _LINE, _GOAL = "#1f2933", "#9fb3c8", "#0b69a3", "#c0392b"


def draw_curve(rows: Sequence[Progress], stop_at: float, title: str) -> bytes:
    """Return over steps, as PNG: each rollout, the mean of the last 100 episodes, the goal."""
    figure, axes = _axes(title)
    steps = [row.steps for row in rows]
    style: dict[str, Any] = {"marker": "o" if len(rows) <= 60 else None, "markersize": 4}
    rollouts = [row.rollout_return for row in rows]
    axes.plot(steps, rollouts, color=_PALE, linewidth=1, label="mean of each rollout", **style)
    means = [row.mean_return for row in rows]
    label = "mean of the last 100 episodes"
    axes.plot(steps, means, color=_LINE, linewidth=2.2, label=label, **style)
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
    return _png(figure, axes)


def draw_groups(groups: Mapping[str, Sequence[Sequence[Progress]]], title: str) -> bytes:
    """Mean return over steps, as PNG: a line a group of runs, the band from its worst to its best.

    A run counts with the mean of its last 100 episodes as it stood at each step, and with its last
    one after its end: a run that was solved stays solved.
    """
    figure, axes = _axes(title)
    for (name, runs), color in zip(groups.items(), cycle(_GROUPS)):  # one is endless
        steps = np.linspace(0, max(run[-1].steps for run in runs), 400)
        values = np.stack([returns_at(run, steps) for run in runs])
        label = name if len(runs) == 1 else f"{name} ({len(runs)} seeds)"
        axes.plot(steps, values.mean(0), color=color, linewidth=2.2, label=label)
        if len(runs) > 1:
            band = {"color": color, "alpha": 0.15, "linewidth": 0}
            axes.fill_between(steps, values.min(0), values.max(0), **band)
    names = [textwrap.fill(str(line.get_label()), _WIDE) for line in axes.lines]
    if max(map(len, names)) <= _SHORT:
        return _png(figure, axes)
    axes.set_xlim(left=0)
    figure.set_figheight(figure.get_figheight() + _ROW * sum(1 + n.count("\n") for n in names))
    figure.legend(
        axes.lines, names, loc="outside lower left", frameon=False, labelcolor=_INK, fontsize=9
    )
    return _encode(figure)


def draw_comparison(
    names: tuple[str, str], scores: tuple[Array, Array], result: Comparison
) -> bytes:
    """Dots for the units of A and B, with their interquartile means and intervals, as PNG."""
    share = result.probability_of_improvement
    figure, axes = _axes(
        f"B beats A with probability {share.value:.2f} [{share.low:.2f}, {share.high:.2f}]"
    )
    for place, (values, evaluation, color) in enumerate(
        zip(map(units, scores), (result.a, result.b), _GROUPS, strict=False)
    ):
        spread = place + 0.1 + np.linspace(0, 0.25, len(values))
        axes.plot(spread, values, "o", color=color, markersize=4, alpha=0.4)
        low, high = evaluation.interquartile_confidence_95
        middle = evaluation.interquartile_mean
        axes.errorbar(
            place, middle, [[middle - low], [high - middle]],
            fmt="o", color=color, markersize=8, linewidth=2.2, capsize=5,
        )  # fmt: skip
    axes.set_xticks([0, 1], [f"{letter}: {name}" for letter, name in zip("AB", names, strict=True)])
    axes.set_xlim(-0.4, 1.6)
    axes.set_xlabel("interquartile mean with its 95 % interval, and each run or episode")
    return _encode(figure)


def returns_at(run: Sequence[Progress], steps: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The mean return of a run at each of ``steps``; constant before its first rollout."""
    means = [row.mean_return for row in run]
    return np.asarray(np.interp(steps, [row.steps for row in run], means))


def _axes(title: str) -> tuple[Any, Any]:
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

    figure = Figure(figsize=(8, 4.5), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title, loc="left", fontsize=12, fontweight="bold", color=_INK)
    axes.set_xlabel("environment steps", color=_INK)
    axes.set_ylabel("undiscounted return", color=_INK)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.grid(color="#e4e7eb", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(_PALE)
    axes.tick_params(colors=_INK)
    return figure, axes


def _png(figure: Any, axes: Any) -> bytes:
    axes.set_xlim(left=0)
    axes.legend(loc="lower right", frameon=False, labelcolor=_INK)
    return _encode(figure)


def _encode(figure: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()
