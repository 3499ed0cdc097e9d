"""Recurrent policies: the memory of an episode, the gradient through it, and its state in use."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical

from eligibility.errors import EligibilityError
from eligibility.train import natural
from eligibility.train.checkpoint import FILE_NAME
from eligibility.train.gradient import per_episode_gradients
from eligibility.train.learner import Reinforce
from eligibility.train.natural import FisherInformation
from eligibility.train.rollout import Rollout
from tests.train.forgery import Facts, Tensors, forge
from tests.train.recall import Recall

HERE = "tests.train.environments:"
KINDS = ("gru", "lstm")


@pytest.mark.parametrize(
    "options",
    [{"recurrent": "gru"}, {"recurrent": "lstm"}, {"recurrent": "gru", "natural_gradient": 0.03}],
    ids=str,
)
def test_what_was_seen_five_steps_ago_is_remembered(options: dict[str, Any]) -> None:
    model = Reinforce(Recall, stop_at=0.99, discount=1.0, **options)
    assert model.learn(40_000).progress.solved  # without a memory: test_frame_stack.py
    assert model.evaluate(100).mean_return == 1


def made(kind: str, **options: Any) -> tuple[Reinforce, Rollout]:
    """A model in double precision, and a rollout of five episodes that differ in length."""
    chosen = {"environments": 5, "hidden_sizes": (6, 4), "normalize": False, **options}
    model = Reinforce("CartPole-v1", recurrent=kind, **chosen)
    rollout = model.shards.collect(model.network, 3)
    assert len({*rollout.alive.sum(0).tolist()}) > 2
    model.network.double()
    with torch.no_grad():
        for number, parameter in enumerate(model.network.parameters()):
            generator = torch.Generator().manual_seed(number)
            parameter.normal_(0, 0.5, generator=generator)
    return model, replace(rollout, observations=rollout.observations.double())


def by_hand(kind: str, weights: dict[str, Tensor], seen: Tensor) -> Tensor:
    """The logits of one episode, ``[T, 2]``, step after step, from the equations of the papers."""
    hidden, cell = torch.zeros(4).double(), torch.zeros(4).double()
    logits = []
    for observation in seen:
        inputs = torch.tanh(weights["layers.0.weight"] @ observation + weights["layers.0.bias"])
        new = weights["memory.cell.weight_ih"] @ inputs + weights["memory.cell.bias_ih"]
        old = weights["memory.cell.weight_hh"] @ hidden + weights["memory.cell.bias_hh"]
        if kind == "gru":
            reset, update = torch.sigmoid(new[:4] + old[:4]), torch.sigmoid(new[4:8] + old[4:8])
            candidate = torch.tanh(new[8:] + reset * old[8:])
            hidden = (1 - update) * candidate + update * hidden
        else:
            enter, forget, candidate, out = (new + old).split(4)
            cell = torch.sigmoid(forget) * cell + torch.sigmoid(enter) * torch.tanh(candidate)
            hidden = torch.sigmoid(out) * torch.tanh(cell)
        logits.append(weights["layers.2.weight"] @ hidden + weights["layers.2.bias"])
    return torch.stack(logits)


@pytest.mark.parametrize("rows", [None, 60])
@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_is_that_of_the_episodes_unrolled_by_hand(
    kind: str, rows: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rewards-to-go of ones are exact in float32, so that nothing is rounded but the sum."""
    model, rollout = made(kind, baseline="none", discount=1.0, entropy_coef=0.125)
    if rows is not None:  # several passes, of two episodes at most
        monkeypatch.setattr(model.gradient, "_rows", rows)
    model.gradient(rollout)
    weights = {name: w.detach().requires_grad_() for name, w in model.network.named_parameters()}
    objective = torch.zeros(()).double()
    for episode, length in enumerate(rollout.alive.sum(0).tolist()):
        policy = Categorical(logits=by_hand(kind, weights, rollout.observations[:length, episode]))
        log_probs = policy.log_prob(rollout.actions[:length, episode])
        objective = objective + (log_probs * torch.arange(length, 0, -1)).sum()
        objective = objective + 0.125 * policy.entropy().sum()
    (-objective / rollout.steps).backward()
    for name, parameter in model.network.named_parameters():
        torch.testing.assert_close(parameter.grad, weights[name].grad, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("kind", KINDS)
def test_acting_and_learning_see_the_same_policy(kind: str) -> None:
    """Step by step with a state, and all steps at once: also the number of episodes differs."""
    model, rollout = made(kind)
    alive = rollout.alive
    state, rows = model.network.start(5), []
    for seen in rollout.observations:
        outputs, state = model.network.step(seen, state)
        rows.append(outputs)
    at_once = model.network(rollout.observations[alive], alive.nonzero()[:, 1])
    torch.testing.assert_close(at_once, torch.stack(rows)[alive], rtol=1e-10, atol=1e-12)
    one = rollout.observations[alive[:, 2], 2]
    torch.testing.assert_close(
        model.network(one), at_once[alive.nonzero()[:, 1] == 2], rtol=1e-10, atol=1e-12
    )


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_by_episodes_are_those_of_one_episode_at_a_time(kind: str) -> None:
    model, rollout = made(kind)
    cotangent = torch.randn(rollout.steps, 2, generator=torch.Generator().manual_seed(0)).double()
    (got,) = per_episode_gradients(model.network, rollout, [cotangent])
    for episode in range(5):
        outputs = model.network(rollout.observations[rollout.alive[:, episode], episode])
        own = cotangent[rollout.alive.nonzero()[:, 1] == episode]
        wanted = torch.autograd.grad(outputs, list(model.network.parameters()), own)
        for (name, _), one in zip(model.network.named_parameters(), wanted, strict=True):
            torch.testing.assert_close(got[name][episode], one, rtol=1e-9, atol=1e-11)


def test_the_fisher_information_is_that_of_the_steps_as_they_were_reached() -> None:
    """Products with it, beside E[e eᵀ] summed over all steps and actions by autograd."""
    model, rollout = made("gru", hidden_sizes=(2,))
    seen, episode = rollout.observations[rollout.alive], rollout.alive.nonzero()[:, 1]
    parameters = list(model.network.parameters())
    log_probs = model.network(seen, episode).log_softmax(-1)
    matrix: Any = 0
    for row in log_probs:
        for log_prob in row:
            gradients = torch.autograd.grad(log_prob, parameters, retain_graph=True)
            e = torch.cat([gradient.flatten() for gradient in gradients])
            matrix = matrix + log_prob.exp().detach() * torch.outer(e, e) / len(seen)
    fisher = FisherInformation(model.network, model.shards.policy, seen, episode)
    got = torch.stack([fisher(row) for row in torch.eye(len(matrix)).double()])
    torch.testing.assert_close(got, matrix, rtol=1e-9, atol=1e-11)


def test_a_sample_for_the_natural_gradient_is_of_whole_episodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alive = torch.tensor([[True] * 4, [True, False, True, True], [False, False, True, False]])
    monkeypatch.setattr(natural, "_LARGEST_SAMPLE", 4)
    whole = natural.sample(alive, whole_episodes=True)
    assert whole.tolist() == (alive & torch.tensor([True, False, True, False])).tolist()
    steps = natural.sample(alive, whole_episodes=False)
    assert steps.nonzero().tolist() == [[0, 0], [0, 2], [1, 0], [1, 3]]


@pytest.mark.parametrize("kind", KINDS)
def test_prediction_hands_the_state_back(kind: str) -> None:
    options = {"environments": 5, "scale_observations": False, "max_episode_steps": 40}
    model = Reinforce("CartPole-v1", recurrent=kind, learning_rate=0.05, **options)
    model.learn(total_steps=500)
    collector = model.shards._collectors[0]
    rollout = collector.collect(model.network, 7, None)  # the most probable actions
    lengths = rollout.alive.sum(0)
    state, alone = None, None
    begins = np.zeros(5, bool)
    for t, seen in enumerate(rollout.observations.numpy()[: lengths.min()]):
        actions, state = model.predict(seen, state=state, episode_start=begins)
        assert actions.tolist() == rollout.actions[t].tolist()
        action, alone = model.predict(seen[3], state=alone)
        assert action == actions[3]
        np.testing.assert_allclose(alone, state[3], rtol=1e-5, atol=1e-6)
    begins[1] = True
    _, after = model.predict(seen, state=state, episode_start=begins)
    _, fresh = model.predict(seen, deterministic=False)
    _, on = model.predict(seen, state=state)
    assert (after[1] == fresh[1]).all()
    assert (after[[0, 2, 3, 4]] == on[[0, 2, 3, 4]]).all()
    assert (after != fresh).any()


def test_it_is_evaluated_with_its_memory_and_goes_on_bit_for_bit(tmp_path: Path) -> None:
    options: dict[str, Any] = {"recurrent": "lstm", "discount": 1.0, "stop_at": 2.0, "seed": 1}
    whole = Reinforce(Recall, **options).learn(total_steps=9000)
    part = Reinforce(Recall, **options).learn(total_steps=4000)
    resumed = Reinforce.load(part.save(tmp_path / "part"), env=Recall)
    assert resumed.config.recurrent == "lstm"
    assert resumed.learn(total_steps=9000).save(tmp_path / "a").read_bytes() == (
        whole.save(tmp_path / "b").read_bytes()
    )
    assert Reinforce.load(tmp_path / "a", env=Recall).evaluate(50) == whole.evaluate(50)


@pytest.mark.parametrize(
    ("env", "options"),
    [
        ("Forbidding-v0", {}),  # taking what is forbidden would raise
        ("ForbiddingByObservation-v0", {"natural_gradient": 0.01}),
        ("Pictures-v0", {"normalize_observations": True}),  # a Dict of a picture and an index
        ("Target-v0", {"squash_actions": True}),
        ("Contextual-v0", {"baseline": "state-value", "gae_lambda": 0.9, "hidden_sizes": (8,)}),
        ("Indices-v0", {"baseline": "leave-one-out+per-weight"}),
        ("Forbidding-v0", {"environments": 1, "baseline": "none"}),
    ],
    ids=str,
)
def test_it_composes_with_what_the_other_policies_do(env: str, options: dict[str, Any]) -> None:
    model = Reinforce(HERE + env, recurrent="gru", **{"environments": 6, **options})
    before = {name: weight.detach().clone() for name, weight in model.network.named_parameters()}
    model.learn(total_steps=60)
    for name, weight in model.network.named_parameters():
        if "weight_hh" not in name:  # in an episode of one step there is nothing to remember
            assert not torch.equal(weight, before[name]), name


def test_a_look_up_of_many_categories_may_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"hidden_sizes": (8, 4), "mask_actions": False, "environments": 2}
    model = Reinforce("Taxi-v4", recurrent="gru", **options)
    seen = torch.randint(500, (12, 1), generator=torch.Generator().manual_seed(0))
    looked_up = model.network(seen)
    monkeypatch.setattr("eligibility.train.network._MANY_CATEGORIES", 1000)
    torch.testing.assert_close(looked_up, model.network(seen))


STATE = "; pass what the last call returned, or None where all episodes begin"


@pytest.mark.parametrize(
    ("recurrent", "given", "text"),
    [
        ("gru", {"state": np.zeros(3, np.float32)},
         "`state`: got float32 of shape [3], expected floating-point numbers of shape [64]"
         + STATE),
        ("lstm", {"state": np.zeros((1, 128))},
         "`state`: got float64 of shape [1, 128], expected floating-point numbers of shape [128]"
         + STATE),
        ("gru", {"episode_start": np.ones(2, bool)},
         "`episode_start`: got bool of shape [2], expected 1 booleans, one for each observation; "
         "pass terminated | truncated of the step before"),
        ("none", {"state": np.zeros(64, np.float32)},
         "`state`: got ndarray, expected None, because this policy is not recurrent; omit it, or "
         "train with recurrent='gru'"),
        ("none", {"episode_start": True},
         "`episode_start`: got bool, expected None, because this policy is not recurrent; omit "
         "it, or train with recurrent='gru'"),
    ],
)  # fmt: skip
def test_a_state_that_does_not_fit_is_refused(
    recurrent: str, given: dict[str, Any], text: str
) -> None:
    model = Reinforce("CartPole-v1", recurrent=recurrent, hidden_sizes=(64,))
    with pytest.raises(EligibilityError, match=f"^{re.escape(text)}$"):
        model.predict(np.zeros(4, np.float32), **given)


def test_a_network_of_ones_own_has_no_recurrent_layer_of_ours() -> None:
    text = (
        "`recurrent`: got gru, expected no value when you pass your own network; omit it, because "
        "your own network sees one step at a time"
    )
    with pytest.raises(EligibilityError, match=f"^{re.escape(text)}$"):
        Reinforce("CartPole-v1", recurrent="gru", network=lambda outputs: torch.nn.Linear(4, 2))


@pytest.mark.parametrize(
    "change", [{"recurrent": "lstm"}, {"recurrent": "none"}, {"hidden_sizes": [9]}], ids=str
)
def test_a_checkpoint_that_claims_another_memory_is_refused(
    change: dict[str, Any], tmp_path: Path
) -> None:
    path = Reinforce("CartPole-v1", recurrent="gru", hidden_sizes=(8,)).save(tmp_path / "model")

    def claim(facts: Facts, tensors: Tensors) -> None:
        facts["config"] |= change

    with pytest.raises(EligibilityError, match=r"`hidden_sizes` has \d+ where the weights have"):
        Reinforce.load(forge(path, tmp_path / FILE_NAME, claim))
