"""Which batches of the probe are run: every outcome of a few worlds, or every unordered one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from eligibility.audit.language.behaviour import Behaviour
from eligibility.audit.language.languages import Language, World, every_batch, make_world
from eligibility.errors import InvalidValueError

# Each with its rewards and with their negatives; more of them add no equation that counts.
_WORLDS = 4


@dataclass(frozen=True, eq=False)
class Outcomes:
    """Every batch that a trainer can meet on the probe, with its probability.

    Attributes:
        language: The sizes.
        worlds: Pairs: each world is followed by the one with the negated rewards.
        chosen: [O, B] which answer each row is; the same list in every world.
        orders: [O] how many orders of its groups an outcome stands for.
        ordered: Whether groups are run in every order.
    """

    language: Language
    worlds: tuple[World, ...]
    chosen: Tensor
    orders: Tensor
    ordered: bool

    @property
    def paths(self) -> int:
        """How many batches are run."""
        return len(self.worlds) * len(self.chosen)

    def probabilities(self, world: World) -> Tensor:
        """[O] probability of each outcome; they sum to 1."""
        language = self.language
        prompt = torch.arange(language.prompts).repeat_interleave(language.group_size)
        return world.probabilities[prompt, self.chosen].prod(1) * self.orders

    def described(self) -> str:
        """What was enumerated, for the report."""
        language, pairs = self.language, len(self.worlds) // 2
        kind = "" if self.ordered else "unordered "
        policies = "policy" if pairs == 1 else "policies"
        orders = "" if self.ordered else " (the order of a group was shown not to matter)"
        prompts = "1 prompt" if language.prompts == 1 else f"{language.prompts} prompts"
        several = " of different lengths" if language.prompts > 1 else ""
        group = (
            f"{language.group_size} answers each" if language.group_size > 1 else "an answer each"
        )
        return (
            f"{prompts}{several}, {group}, "
            f"{language.vocabulary} tokens, answers of at most {language.length}: "
            f"{len(language.answers)} answers, {len(self.chosen)} {kind}outcomes{orders} of "
            f"{pairs} {policies} with generic rewards and with the same rewards negated"
        )


def plan(
    language: Language, behaviour: Behaviour, max_paths: int, symmetric: Callable[[World], bool]
) -> Outcomes:
    """The outcomes to run.

    All orders of every group, if at least one world fits into ``max_paths``; else every unordered
    group, if the loss is symmetric.

    Raises:
        InvalidValueError: There are too many.
    """
    if max_paths < 1:
        raise InvalidValueError(
            "`max_paths`", f"{max_paths}", "a positive number", "omit it to use the default"
        )
    answers, size = len(language.answers), language.group_size
    every = (answers**size) ** language.prompts
    unordered = math.comb(answers + size - 1, size) ** language.prompts
    if 2 * every <= max_paths:
        return _outcomes(language, behaviour, every, max_paths, ordered=True)
    if 2 * unordered > max_paths:
        why = f" ({2 * unordered} without the order within groups)"
    elif symmetric(make_world(language, 0, behaviour)):
        return _outcomes(language, behaviour, unordered, max_paths, ordered=False)
    else:
        why = ", and a loss for which the order of a group's rows matters"
    raise InvalidValueError(
        "the probe",
        f"{2 * every} batches to run{why}",
        f"at most max_paths={max_paths}",
        "pass a smaller length, vocabulary, group_size or number of prompts, or more max_paths",
    )


def _outcomes(
    language: Language, behaviour: Behaviour, count: int, max_paths: int, ordered: bool
) -> Outcomes:
    pairs = min(_WORLDS, max_paths // (2 * count))
    batches = every_batch(language, ordered)
    made = [make_world(language, seed, behaviour) for seed in range(pairs)]
    return Outcomes(
        language=language,
        worlds=tuple(itertools.chain(*((world, world.negated()) for world in made))),
        chosen=torch.tensor([chosen for chosen, _ in batches]),
        orders=torch.tensor([orders for _, orders in batches]).double(),
        ordered=ordered,
    )
