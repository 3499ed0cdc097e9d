"""Masks of actions: from every source, in every form, in acting, scoring and predicting."""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from eligibility.errors import EligibilityError
from eligibility.spaces.counts import Counts
from eligibility.train.learner import Reinforce
from eligibility.train.policies import policy_for
from eligibility.train.rollout import Rollout

HERE = "tests.train.environments:"
SOURCES = ["Forbidding", "ForbiddingByMethod", "ForbiddingByObservation"]


@pytest.mark.parametrize("env", SOURCES)
def test_what_is_forbidden_is_never_done_and_the_best_of_the_rest_is_learned(env: str) -> None:
    model = Reinforce(HERE + f"{env}-v0", steps=10_000, learning_rate=0.02).learn()
    greedy, drawn = model.evaluate(100), model.evaluate(100, deterministic=False)
    assert greedy.mean_return > 2.4  # 2.5 steps on average, and 1 for each
    assert drawn.mean_return > 2.2


def test_masks_can_be_left_out() -> None:
    with pytest.raises(EligibilityError, match="this arm is forbidden"):
        Reinforce(HERE + "Forbidding-v0", mask_actions=False).learn(total_steps=100)


def test_the_sources_are_the_same_to_the_policy() -> None:
    curves = []
    for env in SOURCES:
        model = Reinforce(HERE + f"{env}-v0").learn(total_steps=2000)
        curves.append((model.progress.steps, model.progress.mean_return, model.progress.entropy))
    assert curves[0] == curves[1] == curves[2]


def test_the_gradient_is_that_of_torchs_masked_categorical() -> None:
    model = Reinforce(
        HERE + "Forbidding-v0", environments=4, hidden_sizes=(8,), baseline="none",
        normalize=False, entropy_coef=0.1, discount=1.0,
    )  # fmt: skip
    model.learn(total_steps=100)
    rollout = model.shards.collect(model.network, 9)
    model.gradient(rollout)
    got = [parameter.grad.clone() for parameter in model.network.parameters()]
    loss = torch.zeros(())
    for t, i in rollout.alive.nonzero().tolist():
        seen = rollout.observations[t, i]
        logits = model.network.layers(seen[:4])
        allowed = torch.where(seen[:4] == 1, logits, -math.inf)  # it sees its mask
        policy = torch.distributions.Categorical(logits=allowed)
        own = [p for p in policy.probs if p > 0]
        entropy = -sum(p * p.log() for p in own)
        reward_to_go = float(rollout.rewards[t:, i].sum())
        loss = loss - policy.log_prob(rollout.actions[t, i]) * reward_to_go - 0.1 * entropy
    wanted = torch.autograd.grad(loss / rollout.steps, list(model.network.parameters()))
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_the_expected_gradient_under_a_mask_is_that_of_the_expected_return() -> None:
    """Two episodes of one step, with different masks: every outcome with its probability."""
    model = Reinforce(
        HERE + "Forbidding-v0", environments=2, hidden_sizes=(), baseline="leave-one-out",
        normalize=False,
    )  # fmt: skip
    model.network.double()
    masks = torch.tensor([[1.0, 0, 1, 1], [0, 1, 1, 0]], dtype=torch.float64)
    kept = torch.cat([masks, masks], -1).unsqueeze(0)  # what is seen, then the codes
    with torch.no_grad():
        for parameter in model.network.parameters():
            parameter.normal_(generator=torch.Generator().manual_seed(3))
    once = torch.ones(1, 2, dtype=torch.bool)
    probs = model.network(kept[0]).softmax(-1)
    assert torch.equal(probs == 0, masks == 0)
    expected = [torch.zeros_like(parameter) for parameter in model.network.parameters()]
    for arms in itertools.product(range(4), repeat=2):
        chance = probs[[0, 1], arms].prod().detach()
        if chance == 0:
            continue
        actions = torch.tensor([arms])
        rollout = Rollout(kept, kept[0], actions, actions.double(), once, ~once, once)
        model.gradient(rollout)
        for total, parameter in zip(expected, model.network.parameters(), strict=True):
            total += chance * parameter.grad
    value = (probs @ torch.arange(4.0).double()).mean()
    wanted = torch.autograd.grad(-value, list(model.network.parameters()))
    for one, other in zip(expected, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)


def test_predictions_heed_masks() -> None:
    model = Reinforce(HERE + "Forbidding-v0")
    seen = np.ones((6, 4), np.float32)
    masks = np.eye(4, dtype=np.int8)[[0, 1, 2, 3, 0, 1]]
    for deterministic in (True, False):
        actions = model.predict(seen, deterministic, action_masks=masks)
        assert actions.tolist() == [0, 1, 2, 3, 0, 1]
        assert model.predict(seen[0], deterministic, action_masks=masks[2]) == 2
    by_observation = Reinforce(HERE + "ForbiddingByObservation-v0")
    for arm in range(4):
        whole = {"seen": seen[0], "action_mask": masks[arm]}
        assert by_observation.predict(whole) == arm


@pytest.mark.parametrize(
    ("env", "arguments", "text"),
    [
        (
            "Bandit",
            (np.zeros(2), np.ones(4)),
            "`action_masks`: got masks for a policy that has none, expected None, because the "
            "training environment had no masks; omit them, or train with mask_actions on an "
            "environment with masks",
        ),
        (
            "Forbidding",
            (np.zeros((2, 4)), np.ones((3, 4))),
            "`action_masks`: got 3 masks, expected 2; pass one for each observation",
        ),
        (
            "Forbidding",
            (np.zeros(4), np.zeros(4)),
            "`action_masks` of environment 0: got a mask that forbids every action, expected at "
            "least one action that is allowed; correct the environment",
        ),
    ],
)
def test_predictions_refuse_masks_that_do_not_fit(env: str, arguments: Any, text: str) -> None:
    observation, masks = arguments
    model = Reinforce(HERE + f"{env}-v0")
    with pytest.raises(EligibilityError, match=f"^{re.escape(text)}$"):
        model.predict(observation, action_masks=masks)


def test_a_mask_that_forbids_everything_is_an_error() -> None:
    text = (
        "the action mask of environment 0: got a mask that forbids every action, expected at least "
        "one action that is allowed; correct the environment"
    )
    with pytest.raises(EligibilityError, match=f"^{re.escape(text)}$"):
        Reinforce(HERE + "ForbiddingAll-v0").learn(total_steps=100)


def test_an_environment_that_cannot_be_asked_for_its_masks_is_an_error() -> None:
    text = (
        "the environment's reset: got RuntimeError: not ready, expected no exception; correct the "
        "environment"
    )
    with pytest.raises(EligibilityError, match=f"^{re.escape(text)}$"):
        Reinforce(HERE + "CrashesAtReset-v0")


def test_a_resumed_run_with_masks_is_the_run_that_never_stopped(tmp_path: Path) -> None:
    whole = Reinforce(HERE + "Forbidding-v0").learn(total_steps=2000)
    part = Reinforce(HERE + "Forbidding-v0").learn(total_steps=600)
    file = part.save(tmp_path / "part")
    resumed = Reinforce.load(file, allow_modules=[HERE.partition(":")[0]]).learn(total_steps=2000)
    assert resumed.save(tmp_path / "a").read_bytes() == whole.save(tmp_path / "b").read_bytes()


def test_the_parts_of_a_dict_have_masks_of_their_own() -> None:
    model = Reinforce(HERE + "ForbiddingParts-v0").learn(total_steps=1500)
    assert model.progress.mean_return > 1.5  # index 2, and a number near 1


COMPOSITE = spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Box(-1, 1, (1,)), "c": Counts(2, 2)})
NONE_OF_THE_PARTS = (
    "the action mask: got a dict with the keys {}, expected a dict with some of the keys "
    "['a', 'b', 'c']; name the parts of the action space that have a mask; None is no mask"
)


@pytest.mark.parametrize(
    ("space", "masks", "codes", "stuck"),
    [
        (spaces.Discrete(3), [[1, 0, 1], [0, 0, 0]], [[1, 0, 1], [0, 0, 0]], [False, True]),
        (spaces.Discrete(2), np.array([[True, False]]), [[1, 0]], [False]),
        (
            spaces.MultiDiscrete([2, 3]),
            [([1, 0], [0, 1, 1]), ([1, 1], [0, 0, 0])],
            [[1, 0, 0, 1, 1], [1, 1, 0, 0, 0]],
            [False, True],
        ),
        (spaces.MultiDiscrete([2, 2]), np.array([[1, 0, 0, 1]]), [[1, 0, 0, 1]], [False]),
        (
            spaces.MultiDiscrete([[2], [2]]),
            [(([0, 1],), ([1, 1],))],
            [[0, 1, 1, 1]],
            [False],
        ),
        (spaces.MultiBinary(3), np.array([[0, 1, 2]]), [[0, 2, 1]], [False]),
        (
            spaces.MultiBinary(2),
            np.array([[1, 0, 0, 1], [1, 1, 0, 0]]),
            [[0, 2], [1, 3]],
            [False, True],
        ),
        (Counts(3, 3), [[0, 1, 1], [0, 0, 0]], [[0, 1, 1], [0, 0, 0]], [False, True]),
        (
            COMPOSITE,
            [{"a": [0, 1], "c": None}, {"c": [0, 0], "b": None}, None],
            [[0, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 1], [1, 1, 1, 1, 1, 1]],
            [False, True, False],
        ),
        (COMPOSITE, {"a": np.array([[1, 0]])}, [[1, 0, 1, 1, 1, 1]], [False]),
        (
            COMPOSITE,
            {"a": np.array([[1, 0]]), "_a": np.array([True])},  # as a vector of Gymnasium's has it
            [[1, 0, 1, 1, 1, 1]],
            [False],
        ),
        (
            spaces.Tuple([spaces.Discrete(2), spaces.Discrete(2)]),
            [([0, 1], None), (None, [0, 0])],
            [[0, 1, 1, 1], [1, 1, 0, 0]],
            [False, True],
        ),
    ],
)
def test_masks_in_every_form(space: Any, masks: Any, codes: Any, stuck: list[bool]) -> None:
    policy = policy_for(space)
    got = policy.codes(masks)
    assert got.tolist() == codes
    assert policy.stuck(got).tolist() == stuck


@pytest.mark.parametrize(
    ("space", "masks", "text"),
    [
        (
            spaces.Discrete(3),
            np.ones((2, 4)),
            "the action mask: got shape [4], expected [3]; give one number an action, 0 for those "
            "that are forbidden",
        ),
        (
            spaces.Discrete(3),
            ["yes"],
            "the action mask: got <U3 values, expected 3 numbers; give one number an action, 0 "
            "for those that are forbidden",
        ),
        (
            spaces.MultiBinary(2),
            [[0, 3]],
            "the action mask: got other numbers, expected 0, 1 and 2; give one number a bit: 0 "
            "and 1 are what it must be, 2 leaves it free",
        ),
        (
            COMPOSITE,
            [{"b": [1]}],
            "the action mask: got one for numbers of a Box, expected none: there is nothing to "
            "choose from; omit it, or None for this part of a Dict or Tuple",
        ),
        (
            COMPOSITE,
            {"z": np.ones((1, 2)), 3: np.ones((1, 2))},
            NONE_OF_THE_PARTS.format("['z', 3]"),
        ),
        (COMPOSITE, [None, {"z": [0, 1]}], NONE_OF_THE_PARTS.format("['z']")),
        (COMPOSITE, [{"a": [0, 1], "d": [0, 1]}], NONE_OF_THE_PARTS.format("['a', 'd']")),
        (
            COMPOSITE,
            np.ones((1, 6)),
            NONE_OF_THE_PARTS.replace("a dict with the keys {}", "ndarray"),
        ),
        (
            spaces.Tuple([spaces.Discrete(2), spaces.Discrete(2)]),
            [([0, 1],)],
            "the action mask: got 1 masks, expected 2 masks; name the parts of the action space "
            "that have a mask; None is no mask",
        ),
        (
            COMPOSITE,
            [{}, None],
            NONE_OF_THE_PARTS.replace("a dict with the keys {}", "an empty dict"),
        ),
        (COMPOSITE, {}, NONE_OF_THE_PARTS.replace("a dict with the keys {}", "an empty dict")),
    ],
)
def test_a_mask_that_does_not_fit_is_refused(space: Any, masks: Any, text: str) -> None:
    with pytest.raises(EligibilityError, match=f"^{re.escape(text)}$"):
        policy_for(space).codes(masks)
