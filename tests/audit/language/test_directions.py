"""The named directions, each by a second route; and the theorems on KL estimators, to rounding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from eligibility.audit.language.behaviour import Behaviour
from eligibility.audit.language.directions import Answers, decompose, directions, objectives
from eligibility.audit.language.languages import Language, World, example_batch, make_world
from eligibility.audit.language.measurement import observe, true_directions
from eligibility.audit.language.outcomes import Outcomes, plan
from eligibility.audit.language.token_batch import TokenBatch

SMALL = Language(prompts=2, group_size=1, length=3, vocabulary=2)
WIDE = Language(prompts=1, group_size=2, length=2, vocabulary=3)


def outcomes_of(language: Language) -> Outcomes:
    return plan(language, Behaviour(), 3000, lambda world: True)


def listed(world: World, logits: Tensor) -> list[Answers]:
    language = world.language
    mask = (torch.arange(language.width) < language.lengths[:, None]).double()
    return [
        Answers(
            logits[prompt, language.positions].log_softmax(-1),
            world.ref_logits[prompt, language.positions].log_softmax(-1),
            language.tokens,
            mask,
            world.rewards[prompt],
        )
        for prompt in range(language.prompts)
    ]


def by_hand(world: World, logits: Tensor, name: str, visited: Tensor) -> Tensor:
    """The objectives once more, state by state in plain loops; E over states by ``visited``."""
    language, total = world.language, torch.zeros((), dtype=torch.float64)
    for prompt in range(language.prompts):
        own = [row.log_softmax(0) for row in logits[prompt]]
        ref = [row.log_softmax(0) for row in world.ref_logits[prompt]]
        then = [row.log_softmax(0) for row in visited[prompt]]
        index = {state: number for number, state in enumerate(language.states)}
        for number, answer in enumerate(language.answers):
            rows = [index[answer[:t]] for t in range(len(answer))]
            p: Any = sum(own[s][a] for s, a in zip(rows, answer, strict=True))
            q: Any = sum(ref[s][a] for s, a in zip(rows, answer, strict=True))
            b: Any = sum(then[s][a] for s, a in zip(rows, answer, strict=True))
            reverse = sum((own[s].exp() * (own[s] - ref[s])).sum() for s in rows)
            forward = sum((ref[s].exp() * (ref[s] - own[s])).sum() for s in rows)
            entropy = sum(-(own[s].exp() * own[s]).sum() for s in rows)
            values: dict[str, Any] = {
                "reward": p.exp() * world.rewards[prompt, number],
                "kl-reverse": p.exp() * (p - q),
                "entropy": -p.exp() * p,
                "kl-states": b.exp() * reverse,
                "kl-forward": b.exp() * forward,
                "entropy-states": b.exp() * entropy,
            }
            total = total + values[name]
    return total / language.prompts


@pytest.mark.parametrize("language", [SMALL, WIDE])
@pytest.mark.parametrize(
    "name", ["reward", "kl-reverse", "kl-states", "kl-forward", "entropy", "entropy-states"]
)
def test_a_direction_is_the_central_difference_of_its_objective(
    language: Language, name: str
) -> None:
    world = make_world(language, 1, Behaviour())
    table = world.logits.clone().requires_grad_()
    direction = directions(listed(world, table), [table])[name].reshape(table.shape)
    along = torch.randn(table.shape, generator=torch.Generator().manual_seed(2)).double()
    step = 1e-5
    up, down = (
        by_hand(world, world.logits + sign * step * along, name, world.logits) for sign in (1, -1)
    )
    assert abs((up - down) / (2 * step) - (direction * along).sum()) < 1e-9


def test_the_answers_have_all_the_probability() -> None:
    for language in (SMALL, WIDE):
        for world in outcomes_of(language).worlds:
            assert torch.allclose(world.probabilities.sum(1), torch.ones(1).double(), atol=1e-15)


def test_the_entropy_of_answers_is_that_of_the_enumerated_distribution() -> None:
    world = make_world(SMALL, 0, Behaviour())
    for prompt, answers in enumerate(listed(world, world.logits)):
        p = world.probabilities[prompt]
        assert abs(objectives(answers)["entropy"] + (p * p.log()).sum()) < 1e-14


# The theorems. ``k`` is log π − log ref of a token; E[∇ loss] is minus the named direction.
def penalty(kind: str, batch: TokenBatch) -> Tensor:
    k = batch.log_probs - batch.ref_log_probs
    ratio = (batch.log_probs - batch.log_probs.detach()).exp()
    k3 = (-k).exp() - 1 + k
    each = {
        "k1": k,
        "k2": k**2 / 2,
        "k3": k3,
        "ratio × k3": ratio * k3,
        "ratio × k1": ratio * k,
        "k1 in the reward": batch.log_probs * ((k.detach() * batch.mask).sum(1, keepdim=True)),
    }[kind]
    return (each * batch.mask).sum(1).mean()


@pytest.mark.parametrize("language", [SMALL, WIDE])
@pytest.mark.parametrize(
    ("kind", "direction"),
    [
        ("k1", None),
        ("k2", "kl-states"),
        ("k3", "kl-forward"),
        ("ratio × k3", "kl-states"),
        ("ratio × k1", "kl-states"),
        ("k1 in the reward", "kl-reverse"),
    ],
)
def test_the_expected_gradient_of_a_kl_estimator(
    language: Language, kind: str, direction: str | None
) -> None:
    outcomes = outcomes_of(language)
    observed = observe(lambda batch: penalty(kind, batch), outcomes)
    expected = -observed.expected(observed.ascent)
    wanted = true_directions(outcomes)[direction] if direction else np.zeros_like(expected)
    assert np.abs(expected - wanted).max() < 1e-12


def mean_of_answers(batch: TokenBatch, advantages: Tensor) -> Tensor:
    return -((batch.log_probs * batch.mask).sum(1) * advantages).mean()


def group_mean(batch: TokenBatch) -> Tensor:
    return batch.rewards.view(-1, batch.group_size).mean(1).repeat_interleave(batch.group_size)


CREDITS: dict[str, tuple[float, Callable[[TokenBatch], Tensor]]] = {
    "no baseline": (1.0, lambda b: b.rewards),
    "leave-one-out": (
        1.0,
        lambda b: (b.rewards - group_mean(b)) * b.group_size / (b.group_size - 1),
    ),
    "group mean with one's own": (0.5, lambda b: b.rewards - group_mean(b)),
}


@pytest.mark.parametrize("name", CREDITS)
def test_a_group_mean_with_ones_own_reward_only_scales(name: str) -> None:
    factor, credit = CREDITS[name]
    outcomes = outcomes_of(WIDE)
    observed = observe(lambda batch: mean_of_answers(batch, credit(batch)), outcomes)
    difference = observed.expected(observed.ascent) - factor * true_directions(outcomes)["reward"]
    assert np.abs(difference).max() < 1e-14


def test_unordered_groups_give_the_same_expected_gradient() -> None:
    language = Language(prompts=2, group_size=2, length=2, vocabulary=2)
    ordered = plan(language, Behaviour(), 3000, lambda world: True)
    unordered = plan(language, Behaviour(), 150, lambda world: True)
    assert (ordered.ordered, unordered.ordered) == (True, False)
    first, second = (
        observe(lambda b: mean_of_answers(b, b.rewards - group_mean(b)), each)
        for each in (ordered, unordered)
    )
    found, wanted = second.expected(second.ascent), first.expected(first.ascent)
    assert np.abs(found - wanted[: len(found)]).max() < 1e-15


def test_a_decomposition_says_what_no_name_explains() -> None:
    named = {"reward": torch.tensor([1.0, 0.0, 0.0]), "entropy": torch.tensor([0.0, 2.0, 0.0])}
    found = decompose(torch.tensor([3.0, 0.0, 4.0]), named)
    assert dict(found.coefficients) == pytest.approx({"reward": 3.0})
    assert found.residual == pytest.approx(0.8)


def test_padded_positions_depend_on_the_parameters() -> None:
    world = make_world(Language(prompts=2, group_size=2, length=3, vocabulary=2), 0, Behaviour())
    leaf, (batch,) = world.batches(torch.tensor([[3, 2, 1, 0]]))
    padded = (batch.log_probs * (1 - batch.mask)).sum()
    (gradient,) = torch.autograd.grad(padded, leaf)
    width = batch.mask.shape[1]  # the prompts' positions come after
    assert (gradient[0, :, :width].abs().sum(-1) > 0).equal(batch.mask == 0)


def test_the_fields_of_a_batch_fit_together() -> None:
    batch = example_batch(Language(prompts=2, group_size=2, length=3, vocabulary=2, pad_to=5))
    assert batch.tokens.shape == batch.mask.shape == batch.token_rewards.shape == (4, 5)
    assert torch.equal(batch.mask.sum(1).long(), batch.lengths)
    assert torch.allclose(batch.hidden @ batch.unembedding.T, batch.logits, atol=1e-14)
    assert torch.equal(batch.token_rewards.sum(1), batch.rewards)
    taken = batch.logits.log_softmax(-1).gather(-1, batch.tokens[..., None])[..., 0]
    assert torch.equal(taken, batch.log_probs)
    assert batch.prompt.tolist() == [0, 0, 1, 1]
    assert batch.prompt_mask.sum(1).tolist() == [1.0, 1.0, 2.0, 2.0]
    assert batch.ended.tolist() == [False, True, True, True]
    carries = {name for name, value in vars(batch).items() if getattr(value, "requires_grad", 0)}
    assert carries == {"log_probs", "logits", "sequence_logits", "hidden", "unembedding"}
    assert torch.equal(batch.rows(torch.tensor([2, 0])).rewards, batch.rewards[[2, 0]])
