"""Draws the figures of *The characteristic eligibility*: ``python docs/theory/figures.py``.

Each figure is two functions: one computes its numbers, with this library, and one draws them. The
SVG file carries the numbers it shows in its metadata, and a test compares them with fresh ones, so
that a figure cannot grow stale.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor
from torch.distributions import Bernoulli, Categorical

import eligibility as el

FOLDER = Path(__file__).parent / "figures"
Numbers = dict[str, list[float]]
# What a figure shows, how it is drawn, its size in inches.
Drawing = tuple[Callable[[], Numbers], Callable[[Figure, Numbers], None], tuple[float, float]]

INK, MUTED, GRID = "#1f2933", "#66727f", "#e4e7eb"
BLUE, ORANGE, TEAL, VIOLET, GREY = "#2458a6", "#c8561b", "#14806f", "#7a4fa3", "#9aa5b1"
STYLE = {
    "font.family": "sans-serif",
    # First the one that comes with matplotlib: a figure is laid out alike on every machine.
    "font.sans-serif": ["DejaVu Sans", "Helvetica Neue", "Liberation Sans", "Arial"],
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.titlepad": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "svg.fonttype": "none",  # text stays text: small files, and screen readers can read it
    "svg.hashsalt": "eligibility",
}

PROBS = torch.tensor([0.69, 0.1, 0.2, 0.01], dtype=torch.float64)
REWARDS = torch.tensor([1.0, 2.0, 0.0, 4.0], dtype=torch.float64)


def coin_numbers() -> Numbers:
    """Eligibility of a coin, of its probability and of its log-odds, for both outcomes."""
    p = torch.linspace(0.08, 0.92, 85, dtype=torch.float64)
    logit = torch.linspace(-5, 5, 81, dtype=torch.float64)
    numbers = {"p": p.tolist(), "logit": logit.tolist()}
    for y in (0.0, 1.0):
        outcome = torch.tensor(y, dtype=torch.float64)
        for name, grid in (("probs", p), ("logits", logit)):
            eligibility = el.eligibility(Bernoulli(**{name: grid}), outcome.expand(len(grid)))[name]
            numbers[f"{name}, y = {y:.0f}"] = eligibility.tolist()
    return numbers


def draw_coin(figure: Figure, numbers: Numbers) -> None:
    left, right = figure.subplots(1, 2)
    for axes, name, grid in ((left, "probs", "p"), (right, "logits", "logit")):
        axes.axhline(0, color=GREY, linewidth=0.8)
        for y, colour in ((1, BLUE), (0, ORANGE)):
            axes.plot(numbers[grid], numbers[f"{name}, y = {y}"], color=colour, linewidth=2)
        axes.grid(color=GRID, linewidth=0.8)
    left.set(title="of the probability p, eq. (5)", xlabel="p", ylim=(-13, 13), xlim=(0, 1))
    right.set(title="of the log-odds l, eq. (7)", xlabel="l", ylim=(-1.25, 1.25), xlim=(-5, 5))
    left.text(0.2, 7, "y = 1:  1/p", color=BLUE)
    left.text(0.8, -7.6, "y = 0:  −1/(1−p)", color=ORANGE, ha="right")
    right.text(-4.7, 1.07, "y = 1:  1 − p", color=BLUE)
    right.text(4.7, -1.17, "y = 0:  −p", color=ORANGE, ha="right")
    left.set_ylabel("eligibility")


def edges_numbers() -> Numbers:
    """The forum's gradient ∂p₀/∂probs and the two edges that it is the sum of."""
    weights = PROBS.clone().requires_grad_()
    total = weights.sum()
    (gradient,) = torch.autograd.grad(weights[0] / total, weights)
    (division,) = torch.autograd.grad(weights[0] / total.detach(), weights)
    (normaliser,) = torch.autograd.grad(weights[0].detach() / weights.sum(), weights)
    return {
        "through the sum": normaliser.tolist(),
        "through the division": division.tolist(),
        "probs.grad": gradient.tolist(),
    }


def draw_edges(figure: Figure, numbers: Numbers) -> None:
    panels = figure.subplots(1, 3, sharey=True)
    titles = ("through the sum Σw", "through the division w₀/Σw", "probs.grad")
    colours = (ORANGE, BLUE, INK)
    for axes, title, colour, values in zip(panels, titles, colours, numbers.values(), strict=True):
        _bars(axes, values, colour)
        axes.set_title(title, color=colour)
    for axes, sign in zip(panels[1:], "+=", strict=True):
        axes.annotate(
            sign, (-0.1, 0.5), xycoords="axes fraction", fontsize=18, ha="center", va="center"
        )
    panels[0].set_ylim(-1.05, 1.3)


def _bars(axes: Axes, values: list[float], colour: str) -> None:
    axes.bar(range(len(values)), values, width=0.62, color=colour)
    axes.axhline(0, color=GREY, linewidth=0.8)
    for k, value in enumerate(values):
        below = value < 0
        axes.annotate(
            f"{value:+.2f}".replace("-", "−") if value else "0",
            (k, value),
            xytext=(0, -3 if below else 3),
            textcoords="offset points",
            ha="center",
            va="top" if below else "bottom",
            fontsize=9,
        )
    axes.set_xticks(range(len(values)), [str(k) for k in range(len(values))])
    axes.set_xlabel("category")
    axes.set_yticks([])
    axes.tick_params(length=0)
    axes.spines[["left", "bottom"]].set_visible(False)


def conventions_numbers() -> Numbers:
    """Two categories, the first one drawn: its eligibility in three coordinates, scaled by p."""
    probs = torch.tensor([0.6, 0.4], dtype=torch.float64)
    policy, action = Categorical(probs=probs), torch.tensor(0)
    numbers = {"point": probs.tolist()}
    for coordinates in ("ambient", "weights", "tangent"):
        eligibility = el.eligibility(policy, action, coordinates=coordinates)["probs"]
        numbers[coordinates] = (eligibility * probs[0]).tolist()
    return numbers


def draw_conventions(figure: Figure, numbers: Numbers) -> None:
    axes = figure.subplots()
    x, y = numbers["point"]
    axes.plot([0, 1], [1, 0], color=INK, linewidth=1.6)
    axes.plot([0, 1.62], [0, 1.62 * y / x], color=GREY, linewidth=1, linestyle=(0, (4, 3)))
    axes.plot([x, x], [-0.32, 1.05], color=GREY, linewidth=1, linestyle=(0, (1, 2)))
    tips = {name: (x + numbers[name][0], y + numbers[name][1]) for name in list(numbers)[1:]}
    for name in ("ambient", "weights"):
        axes.plot(*zip(tips[name], tips["tangent"], strict=True), color=TEAL, linewidth=0.9)
    for name, colour in (("ambient", BLUE), ("weights", ORANGE), ("tangent", TEAL)):
        arrow = {"arrowstyle": "-|>,head_width=0.25,head_length=0.55", "color": colour, "lw": 2.2}
        axes.annotate("", tips[name], (x, y), arrowprops={**arrow, "shrinkA": 0, "shrinkB": 0})
    axes.plot(x, y, "o", color=INK, markersize=5)
    axes.text(0.22, 0.83, "p₀ + p₁ = 1", color=INK)
    axes.text(1.36, 1.0, "along this ray\nπ does not change", color=MUTED, ha="right", fontsize=9)
    axes.text(
        x - 0.03, 1.0, "along this line\np₀ does not change", color=MUTED, ha="right", fontsize=9
    )
    axes.text(1.22, 0.44, "ambient", color=BLUE)
    axes.text(0.88, -0.24, "weights (torch)", color=ORANGE)
    axes.text(1.15, -0.12, "tangent: the projection of both", color=TEAL)
    axes.set(xlabel="weight of category 0 (drawn)", ylabel="weight of category 1")
    axes.set(xlim=(0, 1.75), ylim=(-0.32, 1.15), aspect="equal")
    axes.set_xticks([0, 0.5, 1, 1.5])
    axes.set_yticks([0, 0.5, 1])


def logits_numbers() -> Numbers:
    """The eligibility of the logits, one row an action."""
    rows = el.eligibility(Categorical(logits=PROBS.log()), torch.arange(4))
    return {f"action {a}": row for a, row in enumerate(rows["logits"].tolist())}


def draw_logits(figure: Figure, numbers: Numbers) -> None:
    panels = figure.subplots(1, 4, sharey=True)
    for action, (axes, values) in enumerate(zip(panels, numbers.values(), strict=True)):
        _bars(axes, values, ORANGE)
        axes.patches[action].set_color(BLUE)
        axes.set_title(f"action {action}, drawn {PROBS[action]:.0%}", fontsize=10)
    panels[0].set_ylim(-0.95, 1.25)


def baselines_numbers() -> Numbers:
    """Variance of (r − b) e_k for each logit, exactly, as a function of b."""
    baseline = torch.linspace(-1, 5, 61, dtype=torch.float64)
    eligibility = torch.eye(4, dtype=torch.float64) - PROBS  # row a, column k
    gradient = _expected(REWARDS[:, None] * eligibility)
    numbers = {"baseline": baseline.tolist(), "mean reward": [float(PROBS @ REWARDS)]}
    for k in range(4):
        terms = (REWARDS[:, None] - baseline) * eligibility[:, k, None]
        numbers[f"logit {k}"] = (_expected(terms**2) - gradient[k] ** 2).tolist()
    best = _expected(REWARDS[:, None] * eligibility**2) / _expected(eligibility**2)
    return {**numbers, "optimal": best.tolist()}


def _expected(terms: Tensor) -> Tensor:
    return (PROBS[:, None] * terms).sum(0)


def draw_baselines(figure: Figure, numbers: Numbers) -> None:
    axes = figure.subplots()
    mean = numbers["mean reward"][0]
    axes.axvline(mean, color=GREY, linewidth=1, linestyle=(0, (4, 3)))
    axes.text(mean + 0.07, 1.1, f"mean reward {mean:.2f}", color=MUTED)
    for k, colour in enumerate((BLUE, ORANGE, TEAL, VIOLET)):
        variance, best = numbers[f"logit {k}"], numbers["optimal"][k]
        axes.plot(numbers["baseline"], variance, color=colour, linewidth=2)
        nearest = min(range(len(variance)), key=lambda i: abs(numbers["baseline"][i] - best))
        axes.plot(best, variance[nearest], "o", color=colour, markersize=6, clip_on=False)
    axes.text(2.62, 0.72, "logit 0", color=BLUE)
    axes.text(4.3, 0.62, "logit 1", color=ORANGE, ha="right")
    axes.text(2.0, 0.72, "logit 2", color=TEAL, ha="right")
    axes.text(4.4, 0.06, "logit 3", color=VIOLET)
    axes.set(xlabel="baseline b", ylabel="variance of (r − b) eₖ", xlim=(-1, 5), ylim=(0, 1.2))
    axes.grid(color=GRID, linewidth=0.8)


def saturation_numbers() -> Numbers:
    """Gradient at the logit of an unlikely action, in float32, by two routes that should agree."""
    gaps = torch.linspace(0, 30, 241)
    logits = torch.stack([gaps, torch.zeros_like(gaps)], -1).requires_grad_()
    action = torch.ones(len(gaps), dtype=torch.long)
    numbers = {"gap": gaps.tolist()}
    routes = {
        "logits=": Categorical(logits=logits),
        "probs=softmax": Categorical(probs=torch.softmax(logits, -1)),
    }
    for name, policy in routes.items():
        (gradient,) = torch.autograd.grad(policy.log_prob(action).sum(), logits)
        numbers[name] = gradient[:, 1].tolist()
    return numbers


def draw_saturation(figure: Figure, numbers: Numbers) -> None:
    axes = figure.subplots()
    axes.plot(numbers["gap"], numbers["logits="], color=BLUE, linewidth=2.4)
    axes.plot(numbers["gap"], numbers["probs=softmax"], color=ORANGE, linewidth=2.4)
    axes.text(17, 1.04, "Categorical(logits=z)", color=BLUE)
    axes.text(17, 0.07, "Categorical(probs=softmax(z))", color=ORANGE)
    axes.set(xlabel="z₀ − z₁: how sure the policy is of action 0, when action 1 was drawn")
    axes.set(ylabel="∂ log π(1) / ∂z₁", xlim=(0, 30), ylim=(-0.05, 1.2))
    axes.grid(color=GRID, linewidth=0.8)


FIGURES: dict[str, Drawing] = {
    "coin": (coin_numbers, draw_coin, (8, 3.2)),
    "edges": (edges_numbers, draw_edges, (8, 2.7)),
    "conventions": (conventions_numbers, draw_conventions, (7, 5.0)),
    "logits": (logits_numbers, draw_logits, (8, 2.5)),
    "baselines": (baselines_numbers, draw_baselines, (7, 3.6)),
    "saturation": (saturation_numbers, draw_saturation, (7, 3.0)),
}


def write_figure(name: str, drawing: Drawing, folder: Path) -> Path:
    """Draw one figure as ``folder/name.svg``, with the numbers it shows in its metadata."""
    compute, draw, size = drawing
    numbers = {
        key: [float(f"{value:.5g}") for value in values] for key, values in compute().items()
    }
    path = folder / f"{name}.svg"
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=size, layout="constrained", facecolor="white")
        draw(figure, numbers)
        metadata = {"Description": json.dumps(numbers), "Date": None, "Creator": None}
        figure.savefig(path, format="svg", metadata=metadata)
    return path


def write_figures(figures: dict[str, Drawing]) -> None:
    """Draw all figures of one chapter where its text looks for them."""
    FOLDER.mkdir(exist_ok=True)
    for name, drawing in figures.items():
        write_figure(name, drawing, FOLDER)


if __name__ == "__main__":
    write_figures(FIGURES)
