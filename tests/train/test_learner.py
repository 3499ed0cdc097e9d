"""The learner: its gradient by two other routes, its optimum, its repeatability, its refusals."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import fields, replace
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch

from eligibility.errors import EligibilityError
from eligibility.train.learner import Reinforce
from eligibility.train.progress import Progress
from eligibility.train.rollout import Rollout, _longer

HERE = "tests.train.environments:"


def gradients(model: Reinforce) -> list[torch.Tensor]:
    """A copy of every weight's gradient."""
    return [parameter.grad.clone() for parameter in model.network.parameters()]


@pytest.mark.parametrize("normalize", [True, False])
def test_the_gradient_is_that_of_the_written_out_loss(normalize: bool) -> None:
    model = Reinforce(
        "CartPole-v1", environments=4, hidden_sizes=(8,), entropy_coef=0.1,
        normalize=normalize, discount=0.9,
    )  # fmt: skip
    model.learn(total_steps=200)
    rollout = model.shards.collect(model.network, 99)
    model.gradient(rollout)
    got = gradients(model)

    loss, advantages = torch.zeros(()), []
    for i, column in enumerate(rollout.alive.T):
        for t in range(int(column.sum())):
            returns = [
                discounted(rollout, t, j) for j in range(4) if rollout.alive[t, j] and j != i
            ]
            mean = sum(returns) / len(returns) if returns else 0.0
            advantages.append(discounted(rollout, t, i) - mean)
    scale = float(np.std(advantages)) if normalize else 1.0
    index = iter(advantages)
    for i, column in enumerate(rollout.alive.T):
        for t in range(int(column.sum())):
            policy = torch.distributions.Categorical(
                logits=model.network(rollout.observations[t, i].unsqueeze(0))[0]
            )
            loss = loss - policy.log_prob(rollout.actions[t, i]) * next(index) / scale
            loss = loss - 0.1 * policy.entropy()
    wanted = torch.autograd.grad(loss / len(advantages), list(model.network.parameters()))
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_an_update_in_several_passes_is_the_update_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Reinforce("CartPole-v1", environments=4, hidden_sizes=(8,), entropy_coef=0.1)
    rollout = model.shards.collect(model.network, 0)
    once = model._differentiate(rollout, rollout, Progress(), 1.0)
    wanted = gradients(model)
    monkeypatch.setattr(model.gradient, "_rows", 7)
    several = model._differentiate(rollout, rollout, Progress(), 1.0)
    assert several.entropy == pytest.approx(once.entropy, rel=1e-6)
    for one, other in zip(gradients(model), wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("schedule", ["constant", "linear"])
def test_steps_fall_with_what_remains_of_the_training(schedule: str) -> None:
    """The first step of Adam is as long as the learning rate, at every weight that has a gradient.

    Beside it, one of the half: begun when half of the steps were done.
    """
    moved = []
    for done in (0, 500):
        model = Reinforce("CartPole-v1", environments=4, schedule=schedule)
        model.progress = replace(model.progress, steps=done)
        before = [weight.detach().clone() for weight in model.network.parameters()]
        model.learn(total_steps=1000, callback=lambda _: False)
        pairs = zip(before, model.network.parameters(), strict=True)
        moved.append(max(float((old - new.detach()).abs().max()) for old, new in pairs))
    rate = model.config.learning_rate
    assert moved == pytest.approx([rate, rate / 2 if schedule == "linear" else rate], rel=1e-3)


@pytest.mark.parametrize("baseline", ["leave-one-out", "leave-one-out+per-weight"])
def test_the_weight_of_the_entropy_falls_with_what_remains(baseline: str) -> None:
    def head(coef: float, schedule: str, remaining: float) -> torch.Tensor:
        model = Reinforce(
            "CartPole-v1",
            environments=4,
            baseline=baseline,
            entropy_coef=coef,
            entropy_schedule=schedule,
        )
        bias = [*model.network.parameters()][-1]
        with torch.no_grad():  # away from uniform, where the entropy has no gradient
            bias.copy_(torch.tensor([0.0, 1.0]))
        model.gradient(model.shards.collect(model.network, 0), remaining=remaining)
        assert bias.grad is not None
        return bias.grad

    quarter = head(0.8, "linear", 0.25)
    torch.testing.assert_close(quarter, head(0.2, "constant", 0.25))
    assert not torch.allclose(quarter, head(0.8, "constant", 0.25))


def test_learning_says_what_remains_of_it() -> None:
    model = Reinforce("CartPole-v1", environments=4, entropy_coef=0.1, entropy_schedule="linear")
    told, steps, gradient = [], [0], model.gradient
    model.gradient = lambda *rollouts: (told.append(rollouts[2]), gradient(*rollouts))[1]  # type: ignore[assignment,func-returns-value]  # a spy
    model.learn(total_steps=300, callback=lambda progress: steps.append(progress.steps))
    assert told == pytest.approx([1 - taken / 300 for taken in steps[:-1]])


def test_a_long_gradient_is_scaled_down_in_its_direction() -> None:
    """Adam's first mean is a tenth of the gradient that it was given."""
    given = []
    for limit in (None, 0.01):
        model = Reinforce("CartPole-v1", environments=4, max_gradient_norm=limit)
        model.learn(total_steps=1, callback=lambda _: False)
        parameters = list(model.network.parameters())
        means = [model.optimizer.state[weight]["exp_avg"].flatten() for weight in parameters]
        given.append(10 * torch.cat(means))
    norm = given[0].norm()
    assert norm > 0.01
    torch.testing.assert_close(given[1], given[0] * 0.01 / norm, rtol=1e-4, atol=1e-9)


def discounted(rollout: Rollout, t: int, i: int) -> float:
    """Σ_k 0.9ᵏ r_{t+k} of episode i."""
    return sum(0.9**k * float(r) for k, r in enumerate(rollout.rewards[t:, i]))


@pytest.mark.parametrize("baseline", ["none", "leave-one-out", "time-dependent-leave-one-out"])
def test_the_expected_gradient_is_the_gradient_of_the_expected_return(baseline: str) -> None:
    """Two pulls of a four-armed bandit: all 16 outcomes, each with its probability."""
    model = Reinforce(
        HERE + "Bandit-v0", environments=2, hidden_sizes=(), baseline=baseline, normalize=False
    )
    model.network.double()
    observation = torch.tensor([[[1.0, 0.5], [1.0, 0.5]]], dtype=torch.float64)
    with torch.no_grad():
        for parameter in model.network.parameters():
            parameter.normal_(generator=torch.Generator().manual_seed(3))
        probs = model.network(observation[0])[0].softmax(-1)
    expected = [torch.zeros_like(parameter) for parameter in model.network.parameters()]
    once = torch.ones(1, 2, dtype=torch.bool)
    for arms in itertools.product(range(4), repeat=2):
        actions = torch.tensor([arms])
        rollout = Rollout(observation, observation[0], actions, actions.double(), once, ~once, once)
        model.gradient(rollout)
        for total, gradient in zip(expected, gradients(model), strict=True):
            total += probs[list(arms)].prod() * gradient
    value = model.network(observation[0])[0].softmax(-1) @ torch.arange(4.0).double()
    wanted = torch.autograd.grad(-value, list(model.network.parameters()))
    for one, other in zip(expected, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)


def test_a_bandit_is_solved_to_its_optimum() -> None:
    model = Reinforce(HERE + "Bandit-v0", seed=2, steps=20_000, stop_at=2.99).learn()
    assert model.progress.solved
    assert model.predict(np.array([1, 0], np.float32)) == 3
    assert model.evaluate(10).mean_return == 3


def test_discrete_states_and_actions_that_do_not_start_at_zero_are_learned() -> None:
    model = Reinforce(HERE + "Contextual-v0", steps=30_000, stop_at=0.99).learn()
    assert model.progress.solved
    assert model.predict(np.arange(3, 8)).tolist() == [3, 4, 5, 6, 7]


def test_cartpole_is_solved() -> None:
    model = Reinforce("CartPole-v1", seed=1).learn()
    assert model.stop_at == 475
    assert model.progress.solved
    assert model.progress.mean_return >= 475
    greedy = model.evaluate(episodes=30)
    assert greedy.mean_return >= 400  # fresh episodes, another policy: near what it was trained to
    assert greedy.minimum <= greedy.confidence_95[0] <= greedy.mean_return
    assert greedy.mean_return <= greedy.confidence_95[1] <= greedy.maximum


def test_the_same_seed_gives_the_same_run_bit_for_bit(tmp_path: Path) -> None:
    files, curves = [], []
    for name, disturbance in (("one", 0), ("two", 1), ("other", 0)):
        torch.manual_seed(disturbance)  # the global generators must not matter
        np.random.seed(disturbance)
        curve: list[Progress] = []
        model = Reinforce("CartPole-v1", seed=6 if name == "other" else 5)
        model.learn(total_steps=4000, callback=curve.append)
        files.append(model.save(tmp_path / name).read_bytes())
        curves.append([(row.steps, row.mean_return, row.entropy) for row in curve])
    assert files[0] == files[1] != files[2]
    assert curves[0] == curves[1] != curves[2]


def test_training_leaves_torchs_global_state_as_it_was() -> None:
    torch.set_num_threads(1)
    state = torch.get_rng_state()
    Reinforce("CartPole-v1", threads=2).learn(total_steps=100)
    assert torch.get_num_threads() == 1
    assert torch.equal(torch.get_rng_state(), state)


def test_a_loaded_model_continues_as_if_it_had_never_stopped(tmp_path: Path) -> None:
    every: tuple[dict[str, Any], ...] = (
        {"baseline": "time-dependent-leave-one-out"},
        {"baseline": "moving-average"},
        {"baseline": "state-value", "value_knows_time": False, "gae_lambda": 0.9},
        {"env": "Taxi-v4", "environments": 16},
    )
    for changed in every:
        options = {"env": "CartPole-v1", **changed}
        whole = Reinforce(**options).learn(total_steps=12_000)
        part = Reinforce(**options).learn(total_steps=5_000)
        saved = part.save(tmp_path / "part")
        resumed = Reinforce.load(saved).learn(total_steps=12_000)
        assert resumed.save(tmp_path / "resumed").read_bytes() == (
            whole.save(tmp_path / "whole").read_bytes()
        )


def test_schedules_and_running_scales_go_on_from_a_checkpoint_bit_for_bit(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "environments": 4, "entropy_coef": 0.1, "entropy_schedule": "linear",
        "schedule": "linear", "normalize": False, "normalize_returns": True,
    }  # fmt: skip
    whole = Reinforce("CartPole-v1", **options)
    half = Reinforce("CartPole-v1", **options)
    half.learn(600, callback=lambda progress: progress.updates < 3)
    resumed = Reinforce.load(half.save(tmp_path / "half"))
    ends = [
        one.learn(600).save(tmp_path / name)
        for name, one in (("whole", whole), ("resumed", resumed))
    ]
    assert ends[0].read_bytes() == ends[1].read_bytes()


def test_learn_stops_where_the_callback_says_so_and_goes_on_when_called_again() -> None:
    model = Reinforce("CartPole-v1")
    assert model.learn(callback=lambda progress: progress.updates < 2) is model
    assert model.progress.updates == 2
    model.learn(total_steps=model.progress.steps + 1)
    assert model.progress.updates == 3


def test_learn_says_beforehand_that_it_will_take_more_steps(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = Reinforce("CartPole-v1", environments=4, max_episode_steps=50)  # 200 at most
    model.learn(total_steps=200)
    assert not caplog.records
    model.set_env("CartPole-v1")  # which has the same limit of the config
    model.learn(total_steps=199, callback=lambda _: bool(caplog.records))
    (record,) = caplog.records
    assert (record.name, record.getMessage()) == (
        "eligibility",
        "note: an update takes one episode from each of the 4 environments, up to 200 steps, "
        "more than the 199 of this training; fewer environments make smaller updates",
    )
    model.learn(total_steps=1)  # which it has already
    assert len(caplog.records) == 1


def test_every_environment_gives_one_whole_episode() -> None:
    model = Reinforce("CartPole-v1", environments=16)
    rollout = model.shards.collect(model.network, 0)
    ends = rollout.terminated | rollout.truncated
    assert ends.sum(0).tolist() == [1] * 16
    assert rollout.alive.sum(0).tolist() == rollout.rewards.sum(0).tolist()
    lengths = rollout.alive.sum(0)
    assert torch.equal(ends.long().argmax(0) + 1, lengths)


def test_an_endless_environment_is_truncated_not_terminated() -> None:
    model = Reinforce(HERE + "Endless-v0", environments=2, max_episode_steps=7)
    rollout = model.shards.collect(model.network, 0)
    assert rollout.episode_returns == [7.0, 7.0]
    assert rollout.truncated[-1].all()
    assert not rollout.terminated.any()


def test_solved_needs_a_hundred_episodes() -> None:
    curve: list[Progress] = []
    Reinforce("CartPole-v1", environments=30, stop_at=1.0).learn(callback=curve.append)
    assert [row.solved for row in curve] == [False, False, False, True]
    assert curve[-1].episodes == 120


def test_the_weights_that_solved_it_are_kept() -> None:
    model = Reinforce("CartPole-v1", environments=100, stop_at=1.0)
    before = [parameter.clone() for parameter in model.network.parameters()]
    model.learn()
    assert model.progress.updates == 0
    assert all(map(torch.equal, before, model.network.parameters()))


def test_predictions_keep_the_shape_of_a_batch_and_sampling_is_seeded() -> None:
    observation = gymnasium.make("CartPole-v1").reset(seed=0)[0]
    models = [Reinforce("CartPole-v1", seed=4) for _ in range(2)]
    assert models[0].predict(observation) in (0, 1)
    batch = np.stack([observation] * 20)
    draws = [model.predict(batch, deterministic=False).tolist() for model in models]
    assert draws[0] == draws[1]
    assert set(draws[0]) == {0, 1}


def test_equal_returns_leave_the_weights_alone() -> None:
    model = Reinforce(HERE + "Endless-v0", environments=4, max_episode_steps=5)
    before = [parameter.clone() for parameter in model.network.parameters()]
    model.learn(total_steps=20)
    assert model.progress.gradient_norm == 0
    assert all(map(torch.equal, before, model.network.parameters()))


@pytest.mark.parametrize(
    ("env", "options", "text"),
    [
        (
            "Nonsense-v0",
            {},
            "`env`: got 'Nonsense-v0' (Environment `Nonsense` doesn't exist), expected the id of "
            "a registered Gymnasium environment; check its spelling, or name the module that "
            "registers it, module:Name-v0, or the file that has its class, file.py:Name",
        ),
        (
            HERE + "Words-v0",
            {},
            "the observation space: got Text(1, 3, charset=a), expected Box, Discrete, "
            "MultiDiscrete, MultiBinary, or a Dict or Tuple of these; exclude it with "
            "observation_keys, or wrap the environment in "
            "gymnasium.wrappers.TransformObservation",
        ),
        (
            HERE + "NotANumber-v0",
            {},
            "the reward at step 0 of environment 1: got nan, expected a finite number; "
            "correct the environment; the policy trained so far is kept",
        ),
        (
            HERE + "Crashing-v0",
            {},
            "the environment's step: got RuntimeError: the arm came off, expected no exception; "
            "correct the environment; the policy trained so far is kept",
        ),
        (
            "CartPole-v1",
            {"learning_rate": 1e200},
            "the policy gradient of update 1: got a norm of nan, expected a finite number; "
            "lower the learning rate; the policy trained so far is kept",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:.*The reward is a NaN value")  # Gymnasium's own advice
def test_refuses(env: str, options: dict[str, float], text: str) -> None:
    with pytest.raises(EligibilityError, match=f"^{re.escape(text)}$"):
        Reinforce(env, **options).learn(total_steps=100_000)


def test_an_observation_of_another_shape_is_refused() -> None:
    text = (
        "`observation`: got shape [3], expected [4], or several of them along a first axis; "
        "pass what the environment returned"
    )
    with pytest.raises(EligibilityError, match=f"^{re.escape(text)}$"):
        Reinforce("CartPole-v1").predict(np.zeros(3))


@pytest.mark.parametrize("number", [np.nan, -np.inf])
def test_an_observation_that_is_no_number_is_refused(number: float) -> None:
    text = "`observation`: got NaN or infinity, expected finite numbers; correct the environment"
    with pytest.raises(EligibilityError, match=f"^{re.escape(text)}$"):
        Reinforce("CartPole-v1").predict([[0, 0, 0, 0], [0, number, 0, 0]])


def test_without_a_threshold_training_goes_on_to_its_steps() -> None:
    assert Reinforce(HERE + "Bandit-v0").stop_at == math.inf


def test_buffers_grow_with_the_episodes(monkeypatch: pytest.MonkeyPatch) -> None:
    rollouts = []
    for rows in (1024, 3):
        monkeypatch.setattr("eligibility.train.rollout._FIRST_ROWS", rows)
        model = Reinforce("CartPole-v1", environments=8, seed=2)
        rollouts.append(model.shards.collect(model.network, 0))
    for part in fields(Rollout):
        one, other = (getattr(rollout, part.name) for rollout in rollouts)
        if part.name not in ("alive", "final_observations"):
            one, other = one[rollouts[0].alive], other[rollouts[0].alive]
        assert torch.equal(one, other), part.name
    assert len(rollouts[0].rewards) > 6  # it has grown twice


def test_a_rollout_without_memory_is_refused() -> None:
    text = (
        "the memory for a rollout: got none for int64 [1024, 1000000000000000000] (steps, "
        "environments, …), expected room for the longest episode; choose fewer environments, or "
        "cut episodes with max_episode_steps"
    )
    with pytest.raises(EligibilityError, match=f"^{re.escape(text)}$"):
        _longer(np.empty((0, 10**18), np.int64), 1024)


def test_training_ends_after_its_seconds_and_goes_on_from_there() -> None:
    options = {"seed": 4, "environments": 4, "stop_at": float("inf")}
    stopped = Reinforce("CartPole-v1", **options).learn(max_seconds=0)
    assert stopped.progress.updates == 1
    whole = Reinforce("CartPole-v1", **options).learn(total_steps=400)
    stopped.learn(total_steps=400)
    assert stopped.progress.steps == whole.progress.steps
    for one, other in zip(stopped.network.parameters(), whole.network.parameters(), strict=True):
        assert torch.equal(one, other)
