"""The clean programs of the zoo: styles × hyperparameters × conventions."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from tests.audit.zoo.changes import clean, read_changes
from tests.audit.zoo.mutations import RULES
from tests.audit.zoo.styles import (
    EQUALLY_LONG,
    PATCHED_STYLES,
    STYLES,
    Program,
    Style,
    tagged_line,
    untagged,
    with_line,
)

# name -> the exchanges of text it makes, where they apply
HYPERPARAMETERS = {
    "as-written": (),
    "gamma-0.97": (("GAMMA = 0.9\n", "GAMMA = 0.97\n"), ("gamma=0.9)", "gamma=0.97)"),
                   ("gamma = 0.9\n", "gamma = 0.97\n"), ("default=0.9)", "default=0.97)"),
                   ("GAMMA, LAMBDA = 0.9", "GAMMA, LAMBDA = 0.97")),
    "undiscounted": (("GAMMA = 0.9\n", "GAMMA = 1.0\n"), ("gamma=0.9)", "gamma=1.0)"),
                     ("gamma = 0.9\n", "gamma = 1.0\n"), ("default=0.9)", "default=1.0)"),
                     ("GAMMA, LAMBDA = 0.9", "GAMMA, LAMBDA = 1.0")),
    "wide-relu": (("nn.Linear(4, 8)", "nn.Linear(4, 32)"), ("nn.Linear(8, ", "nn.Linear(32, "),
                  ("nn.Tanh()", "nn.ReLU()"), ("nn.Linear(6, 8)", "nn.Linear(6, 32)"),
                  ("hidden=8", "hidden=32"), ("nn.Linear(obs_dim, 8)", "nn.Linear(obs_dim, 32)"),
                  ("nn.Linear(inputs, 8)", "nn.Linear(inputs, 32)"),
                  ("PolicyNet(6, 8, 3)", "PolicyNet(6, 32, 3)")),
    "sgd": (("torch.optim.Adam(", "torch.optim.SGD("), ("optim.AdamW(", "optim.SGD("),
            ("optim.Adam(", "optim.SGD("), (", eps=1e-5", "")),
}  # fmt: skip
# name -> (tag, content after the line's indentation, the convention's name)
CONVENTIONS = {
    "exact": ("", "", ""),
    "gamma-t-dropped": ("loss", "loss = -(log_probs * {w}).sum()", "gamma-t-dropped"),
    "mean": ("loss", "loss = -(discounts * log_probs * {w}).mean()", "mean-over-time"),
    "centred": ("transform", "{w} = {w} - {w}.mean()", "centred"),
    "whitened": (
        "transform",
        "{w} = ({w} - {w}.mean()) / ({w}.std(correction=0) + 1e-3)",
        "whitened",
    ),
    "scaled": ("loss", "loss = -3.0 * (discounts * log_probs * {w}).sum()", "constant-scale"),
    "entropy-bonus": (
        "loss",
        "loss = -(discounts * log_probs * {w}).sum() - 0.05 * sum(entropies).sum()",
        "entropy-bonus",
    ),
    "mean-over-each-sequence": (
        "loss",
        "loss = -(discounts * log_probs * {w} / lengths).sum() / SEQUENCES",
        "mean-over-each-episode",
    ),
    "constant-baseline": ("transform", "{w} = {w} - 0.7", "baseline"),
}

_BOOTSTRAPPED = ("bootstrapped", "two_optimizers", "sb3")


def variant(style: Style, hyperparameters: str, convention: str) -> Program | None:
    """One clean program; None where the combination does not exist for the style."""
    text = style.text
    exchanges = HYPERPARAMETERS[hyperparameters]
    for old, new in exchanges:
        text = text.replace(old, new)
    if exchanges and text == style.text:
        return None
    tag, content, name = CONVENTIONS[convention]
    if tag:
        place = tagged_line(text, tag)
        if place is None or (style.name == "vector" and tag == "transform"):
            return None  # padded steps: a mean over them is no convention
        if "lengths" in content and "lengths" not in text:
            return None  # batches of one sequence
        index, line = place
        indent = line[: len(line) - len(line.lstrip())]
        text = with_line(text, index, indent + content.format(w=style.weights))
    if convention == "gamma-t-dropped" and hyperparameters == "undiscounted":
        name = ""  # γ^t is 1
    elif convention == "mean" and style.name in EQUALLY_LONG:
        name = "constant-scale"  # always the same number of steps
    elif convention == "constant-baseline" and style.name in _BOOTSTRAPPED:
        name = ""  # one with the critic's values
    return Program(
        f"{style.name}/{hyperparameters}/{convention}",
        style,
        untagged(text),
        conventions=(name,) if name else (),
    )


@cache
def clean_programs() -> tuple[Program, ...]:
    """Every combination that exists."""
    return tuple(_clean_programs())


def _clean_programs() -> Iterator[Program]:
    for style in STYLES:
        for hyperparameters in HYPERPARAMETERS:
            for convention in CONVENTIONS:
                program = variant(style, hyperparameters, convention)
                if program is not None:
                    yield program
    for style in PATCHED_STYLES:
        yield from clean(style, read_changes(style, RULES))
