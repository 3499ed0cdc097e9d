"""Draws the figures of *The policy gradient of a language model*: run it as a script.

As in `figures.py`: one function computes a figure's numbers, with this library, and one draws them.
"""

from __future__ import annotations

import torch
from figures import (
    BLUE,
    GREY,
    GRID,
    INK,
    MUTED,
    ORANGE,
    TEAL,
    VIOLET,
    Drawing,
    Numbers,
    write_figures,
)
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

import eligibility as el

language = el.exact.language


def chapter_language() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Policy, older policy and reference ``[7, 3]``, rewards ``[15]``: those of the chapter."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    policy = normal(7, 3)
    older, reference = policy + 0.7 * normal(7, 3), policy + 0.7 * normal(7, 3)
    return policy, older, reference, normal(15)


def groups_numbers() -> Numbers:
    """Length and angle of the expected gradient over the size of a group, on-policy."""
    policy, older, _, reward = chapter_language()
    sizes = (2, 3, 4, 5)
    compared = el.exact.compare(
        policy,
        older,
        reward,
        estimators=language.BASELINES[1:],
        drifts=[0.0],
        group_sizes=sizes,
    )
    numbers: Numbers = {"G": [float(size) for size in sizes]}
    for estimator in language.BASELINES[1:]:
        errors = compared[estimator.name]
        numbers[f"{estimator.name}, length"] = [error.length for error in errors]
        # The angle of an unbiased estimate is rounding; two digits are what the figure shows.
        numbers[f"{estimator.name}, angle"] = [round(error.angle, 6) for error in errors]
    return numbers


def draw_groups(figure: Figure, numbers: Numbers) -> None:
    left, right = figure.subplots(1, 2)
    colours = {"group mean": BLUE, "leave-one-out": TEAL, "whitened": ORANGE}
    for axes, field in ((left, "length"), (right, "angle")):
        for name, colour in colours.items():
            axes.plot(numbers["G"], numbers[f"{name}, {field}"], "o-", color=colour, linewidth=2)
        axes.set_xlabel("answers to a prompt, G")
        axes.set_xticks(numbers["G"])
        axes.grid(color=GRID, linewidth=0.8)
    left.set(title="length of E[g] / length of the gradient", ylim=(0, 1.15))
    right.set(title="angle to the gradient, degrees", ylim=(-0.5, 13))
    left.text(2.1, 1.04, "leave-one-out", color=TEAL)
    left.text(3.05, 0.56, "group mean: 1 − 1/G", color=BLUE)
    left.text(4.0, 0.9, "whitened", color=ORANGE, ha="right")
    right.text(2.3, 10.4, "whitened", color=ORANGE)
    right.text(2.3, 0.5, "group mean and leave-one-out", color=MUTED)


def penalties_numbers() -> Numbers:
    """The weight of ∇ log π that each estimator gives, by its own derivative, over ℓ."""
    log_ratio = torch.linspace(-2, 2.5, 91, dtype=torch.float64)
    log_probs = torch.zeros(len(log_ratio), 1, 1, dtype=torch.float64).requires_grad_()
    group = language.AnswerGroups(
        log_probs=log_probs,
        behaviour_log_probs=log_probs.detach(),
        reference_log_probs=-log_ratio[:, None, None],
        rewards=torch.zeros(len(log_ratio), 1),
        mask=torch.ones(len(log_ratio), 1, 1, dtype=torch.float64),
    )
    numbers = {"ℓ": log_ratio.tolist()}
    objectives = language.objectives
    penalties = {"k1": objectives.k1, "k2": objectives.k2, "k3": objectives.k3}
    for name, penalty in {**penalties, "ratio × k3": objectives.ratio_k3}.items():
        (weight,) = torch.autograd.grad(penalty(group).sum(), log_probs)
        numbers[name] = weight.flatten().tolist()
    return numbers


def draw_penalties(figure: Figure, numbers: Numbers) -> None:
    axes = figure.subplots()
    axes.axhline(0, color=GREY, linewidth=0.8)
    axes.axvline(0, color=GREY, linewidth=0.8)
    axes.plot(numbers["ℓ"], numbers["k1"], color=TEAL, linewidth=2)
    axes.plot(numbers["ℓ"], numbers["k2"], color=BLUE, linewidth=4, alpha=0.45)
    axes.plot(numbers["ℓ"], numbers["ratio × k3"], color=BLUE, linewidth=1.4, linestyle=(0, (4, 3)))
    axes.plot(numbers["ℓ"], numbers["k3"], color=ORANGE, linewidth=2)
    axes.text(-1.9, 1.15, "k1: 1, whatever was drawn", color=TEAL)
    axes.text(1.62, 2.15, "k2 and ρ · k3: ℓ", color=BLUE, ha="right")
    axes.text(1.3, 0.42, "k3: 1 − exp(−ℓ)", color=ORANGE)
    axes.set(xlabel="ℓ = log π − log π_ref of the token drawn", ylabel="weight of ∇ log π")
    axes.set(xlim=(-2, 2.5), ylim=(-4, 2.6))
    axes.grid(color=GRID, linewidth=0.8)


def credit_numbers() -> Numbers:
    """The length of the gradient in each state's logits, of the three divergences."""
    policy, _, reference, _ = chapter_language()
    policy.requires_grad_()
    divergences = {
        "whole answers": language.answer_kl(policy, reference),
        "states, reverse": language.state_kl(policy, reference),
        "states, forward": language.state_kl(policy, reference, direction="forward"),
    }
    return {
        name: torch.autograd.grad(divergence, policy)[0].norm(dim=1).tolist()
        for name, divergence in divergences.items()
    }


def draw_credit(figure: Figure, numbers: Numbers) -> None:
    axes = figure.subplots()
    colours = (INK, BLUE, ORANGE)
    labels = ("k1 in the reward: whole answers", "k2, ρ · k3 in the loss", "k3 in the loss")
    for place, (values, colour, label) in enumerate(
        zip(numbers.values(), colours, labels, strict=True)
    ):
        x = [state + 0.26 * (place - 1) for state in range(len(values))]
        axes.bar(x, values, width=0.24, color=colour, label=label)
    axes.set_xticks(range(7), ["nothing", "a", "b", "aa", "ab", "ba", "bb"])
    axes.set(xlabel="state: what was written so far", ylabel="length of the gradient")
    axes.legend(frameon=False)


def drift_numbers() -> Numbers:
    """Bias, variance and error over the drift."""
    policy, older, _, reward = chapter_language()
    drifts = [step / 8 for step in range(13)]
    compared = el.exact.compare(policy, older, reward, drifts=drifts)
    numbers: Numbers = {"drift": drifts}
    for name in _DRIFT_LABELS:
        errors = compared[name]
        # Rounded, because the bias of an unbiased estimate is rounding itself.
        numbers[f"{name}, bias"] = [round(error.bias, 9) for error in errors]
        numbers[f"{name}, variance"] = [error.variance for error in errors]
        numbers[f"{name}, rescaled_mse"] = [error.rescaled_mse for error in errors]
    return numbers


_DRIFT_LABELS = {
    "none": ("no correction", GREY),
    "sequence ratio": ("ratio of the answer", INK),
    "token ratio": ("ratio of the token", TEAL),
    "TIS by token, C = 2": ("truncated, token", BLUE),
    "TIS by sequence, C = 2": ("truncated, answer", VIOLET),
    "MIS by token, [0.5, 2]": ("masked, token", ORANGE),
    "PPO clip, ε = 0.2": ("PPO's clip", "#b0243f"),
}


def draw_drift(figure: Figure, numbers: Numbers) -> None:
    titles = {
        "bias": "bias",
        "variance": "variance",
        "rescaled_mse": "error at the best scale",
    }
    panels: list[Axes] = list(figure.subplots(1, 3))
    for axes, (field, title) in zip(panels, titles.items(), strict=True):
        for name, (label, colour) in _DRIFT_LABELS.items():
            values = numbers[f"{name}, {field}"]
            axes.plot(numbers["drift"], values, color=colour, linewidth=1.8, label=label)
        axes.set(title=title, xlabel="drift", xlim=(0, 1.5))
        axes.set_ylim(bottom=0)
        axes.grid(color=GRID, linewidth=0.8)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)


FIGURES: dict[str, Drawing] = {
    "groups": (groups_numbers, draw_groups, (8, 3.2)),
    "penalties": (penalties_numbers, draw_penalties, (7, 3.8)),
    "credit": (credit_numbers, draw_credit, (8, 3.2)),
    "drift": (drift_numbers, draw_drift, (9, 3.9)),
}

if __name__ == "__main__":
    write_figures(FIGURES)
