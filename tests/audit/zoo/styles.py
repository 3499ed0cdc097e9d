"""The clean programs of the zoo: thirty-four ways in which people write policy gradients.

A program is a text with tagged lines (``#@ tag``); mutations and variants exchange tagged lines.
Twelve styles were at hand when the diagnosis was written. Eight were written when it was frozen and
scored once, and so were five later ones; what was met in them was repaired, so they are opened.
Nine have no tags: their changes are written beside them (see ``changes``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "styles"
# Whether the diagnosis was written or repaired with its programs at hand, or they are only scored.
HALVES = ("tuning", "opened", "scored")
_TAG = re.compile(r"\s*#@ (\w+)$")


@dataclass(frozen=True)
class Style:
    """One program and the names it uses.

    Attributes:
        name: Of the file.
        half: One of ``HALVES``.
        weights: The tensor that multiplies the log-probabilities.
        gamma: The expression of the discount.
        optimizer: What steps.
        log_prob_list: What the log-probabilities are stacked from, if they are.
        inexact: Whether its clean form is no exact policy gradient, but one up to a convention.
    """

    name: str
    half: str
    weights: str = "returns"
    gamma: str = "GAMMA"
    log_prob_list: str = "log_probs"
    optimizer: str = "optimizer"
    inexact: bool = False

    @property
    def text(self) -> str:
        """The tagged program."""
        return (FOLDER / f"{self.name}.py.txt").read_text(encoding="utf-8")


STYLES = (
    Style("flat", half="tuning"),
    Style("agent", half="tuning", gamma="self.gamma", log_prob_list="self.log_probs"),
    Style("batch", half="tuning"),
    Style("vector", half="tuning"),
    Style("actor_critic", half="tuning", weights="advantages", optimizer="actor_optimizer"),
    Style("shared", half="tuning", weights="advantages", gamma="gamma"),
    Style("numpy_sampling", half="tuning"),
    Style("gaussian", half="tuning", gamma="gamma"),
    Style("old_gym", half="tuning", gamma="args.gamma", log_prob_list="policy.saved_log_probs"),
    Style("module", half="tuning", gamma="self.gamma"),
    Style("masked", half="tuning"),
    Style("bootstrapped", half="tuning", weights="advantages", inexact=True),
    Style("functions", half="opened"),
    Style("bernoulli", half="opened"),
    Style("hand_scored", half="opened"),
    Style("buffer", half="opened", gamma="self.config.gamma", optimizer="self.optimizer"),
    Style(
        "two_optimizers",
        half="opened",
        weights="advantages",
        gamma="gamma",
        optimizer="actor_optimizer",
        inexact=True,
    ),
    Style("one_hot", half="opened"),
    Style("same_step", half="opened", inexact=True),
    Style("next_step", half="opened", inexact=True),
    Style("sb3", half="opened", weights="advantages", gamma="0.9", inexact=True),
    Style("multi_discrete", half="opened"),
    Style("squashed", half="opened"),
    Style("token_level", half="opened"),
    Style("clipped", half="opened"),
)
# Their faults and conventions are written beside them; see ``changes``.
PATCHED_STYLES = (
    Style("lightning", half="opened", inexact=True),
    Style("transitions", half="opened", inexact=True),
    Style("course", half="opened", inexact=True),
    Style("functional", half="opened"),
    Style("worker", half="opened", inexact=True),
    Style("tutorial", half="opened", inexact=True),
    Style("rloo", half="opened"),
    Style("minibatches", half="opened", inexact=True),
    Style("karpathy", half="opened", inexact=True),
    Style("scan", half="opened", inexact=True),
    Style("score_by_hand", half="opened", inexact=True),
    Style("lifecycle", half="opened", inexact=True),
    Style("cumsum", half="opened", inexact=True),
    Style("streams", half="opened", inexact=True),
    Style("records", half="opened", inexact=True),
    Style("two_policies", half="opened", inexact=True),
    Style("density", half="opened", inexact=True),
    Style("stacked", half="opened", inexact=True),
    Style("saved", half="opened", inexact=True),
)
# Batches that have the same number of steps each time; and those that never have one step only.
ROLLOUTS = ("vector", "same_step", "next_step", "sb3")
# With the mask of "masked" no action of the probe ends an episode early.
EQUALLY_LONG = (*ROLLOUTS, "masked")
NEVER_SINGLE = (*ROLLOUTS, "batch", "buffer", "token_level")


@dataclass(frozen=True)
class Program:
    """A program of the zoo.

    Attributes:
        name: Style and what was done to it.
        style: The style.
        text: Python source.
        lines: The lines that were changed, or that the fault can be seen in.
        expected: Rules that name the fault rightly; empty for a clean program.
        conventions: Conventions that a clean program was given.
        harmless: Text of the program that the change would be harmless in, if not the clean one: a
            mutant with its gradient on every path is no mutant.
    """

    name: str
    style: Style
    text: str
    lines: frozenset[int] = frozenset()
    expected: tuple[str, ...] = ()
    conventions: tuple[str, ...] = ()
    harmless: str = ""


def tagged_line(text: str, tag: str) -> tuple[int, str] | None:
    """Index and content, without its tag, of the first line with a tag."""
    for index, line in enumerate(text.splitlines()):
        found = _TAG.search(line)
        if found and found.group(1) == tag:
            return index, line[: found.start()]
    return None


def with_line(text: str, index: int, content: str) -> str:
    """The text with one line exchanged; an exchange of several lines keeps their indentation."""
    lines = text.splitlines()
    lines[index] = content
    return "\n".join(lines) + "\n"


def untagged(text: str) -> str:
    """The program as its author would see it."""
    return "\n".join(_TAG.sub("", line) for line in text.splitlines()) + "\n"
