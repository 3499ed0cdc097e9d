"""The zoo of losses over tokens: every biased one is detected, and no clean one accused."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import eligibility as el
from eligibility.audit.language.behaviour import behaviour_named
from eligibility.audit.language.languages import Language, make_world
from eligibility.audit.language.parameters import bind
from tests.audit.language.zoo.blind import CLEAN, FAULTY
from tests.audit.language.zoo.parts import Recipe, clean_recipes, faulty_recipes
from tests.audit.language.zoo.scoring import PATHS, SIZES, scored
from tests.audit.language.zoo.styles import STYLES


def in_two_styles(recipes: list[Recipe]) -> Iterator[tuple[str, Recipe]]:
    """Each recipe in two styles, every style in its turn."""
    names = list(STYLES)
    for number, recipe in enumerate(recipes):
        yield names[number % len(names)], recipe
        yield names[(number + 2) % len(names)], recipe


def in_one_style(recipes: list[Recipe]) -> Iterator[tuple[str, Recipe]]:
    """Each recipe in one style, in turn; `benchmarks.audit_language_zoo` takes all pairs."""
    return zip(itertools.cycle(STYLES), recipes, strict=False)


def exact_residual(arguments: dict[str, Any], behaviour: str = "policy") -> float:
    """‖E[g] − c ∇E[R]‖ / ‖E[g]‖ by a plain loop over outcomes: the label, without the audit's."""
    language = Language(**SIZES)
    world = make_world(language, 0, behaviour_named(behaviour, 1.0, language.vocabulary))
    rows = range(language.prompts * language.group_size)
    loss = bind(
        arguments["loss"], arguments.get("advantage"), None, world.batch(torch.tensor([2, 1, 0, 2]))
    )
    expected = torch.zeros_like(world.logits)
    for outcome in itertools.product(range(len(language.answers)), repeat=len(rows)):
        leaf, (batch,) = world.batches(torch.tensor([outcome]))
        value = loss(batch)
        probability = np.prod(
            [float(world.probabilities[r // 2, a]) for r, a in enumerate(outcome)]
        )
        if value.requires_grad:
            (gradient,) = torch.autograd.grad(value, leaf, allow_unused=True)
            for row in rows:
                for place in range(batch.tokens.shape[1]):
                    state = language.positions[outcome[row], place]
                    if gradient is not None:
                        expected[row // 2, state] -= probability * gradient[0, row, place]
    table = world.logits.clone().requires_grad_()
    objective = torch.zeros((), dtype=torch.float64)
    for prompt, (number, answer) in itertools.product(range(2), enumerate(language.answers)):
        states = [language.states.index(answer[:t]) for t in range(len(answer))]
        log_prob = sum(
            table[prompt, s].log_softmax(0)[a] for s, a in zip(states, answer, strict=True)
        )
        assert isinstance(log_prob, torch.Tensor)
        objective = objective + log_prob.exp() * world.rewards[prompt, number]
    (truth,) = torch.autograd.grad(objective, table)
    size = expected.norm()
    if size < 1e-12:
        return 1.0
    factor = (expected * truth).sum() / truth.norm() ** 2
    if factor < 0:
        return 1.0
    return float((expected - factor * truth).norm() / size)


def test_no_clean_loss_is_accused() -> None:
    found = scored(in_one_style(clean_recipes()))
    accused = [each.name for each in found if each.report.exit_status]
    assert accused == []


def test_every_faulty_loss_is_detected_and_named() -> None:
    found = scored(in_two_styles(faulty_recipes()))
    missed = [each.name for each in found if each.report.exit_status != 1]
    assert missed == []
    assert [each.name for each in found if each.report.verdict == "unbiased"] == []
    assert [each.name for each in found if not each.named] == []


@pytest.mark.parametrize(
    "recipe", [*clean_recipes()[::5], *faulty_recipes()[::3]], ids=lambda r: r.name
)
def test_the_residual_is_that_of_a_plain_loop(recipe: Recipe) -> None:
    arguments = STYLES["flat"](recipe)
    wanted = exact_residual(arguments)
    report = el.audit_token_loss(**arguments, **SIZES, max_paths=PATHS)
    if report.verdict == "wrong-sign":
        assert wanted == 1.0
    elif recipe.extra is None and recipe.shaped is None:
        assert report.residual == pytest.approx(wanted, abs=1e-9)
    else:  # the report's is over the rewards and their negatives, of which this has no part
        assert (report.residual > 1e-6) == (wanted > 1e-6)


@pytest.mark.parametrize("name", CLEAN)
def test_a_clean_loss_of_the_second_part_is_not_accused(name: str) -> None:
    assert el.audit_token_loss(CLEAN[name], max_paths=520).exit_status == 0


@pytest.mark.parametrize("name", FAULTY)
def test_a_faulty_loss_of_the_second_part_is_detected_and_named(name: str) -> None:
    rule, loss = FAULTY[name]
    report = el.audit_token_loss(loss, max_paths=520)
    assert report.exit_status == 1
    assert rule in [finding.rule for finding in report.findings]
