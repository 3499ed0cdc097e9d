"""What the audit puts in the place of other people's names looks and works as they do."""

from __future__ import annotations

import copy
import importlib
import inspect
import io
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

import eligibility as el
from eligibility.audit.job import SIZES, Job
from eligibility.audit.running.execution import execute

NAMES: dict[str, Callable[[], Any]] = {
    "torch.multinomial": lambda: torch.multinomial,
    "torch.normal": lambda: torch.normal,
    "torch.log_softmax": lambda: torch.log_softmax,
    "torch.save": lambda: torch.save,
    "torch.load": lambda: torch.load,
    "torch.compile": lambda: torch.compile,
    "torch.autograd.grad": lambda: torch.autograd.grad,
    "torch.Tensor.backward": lambda: torch.Tensor.backward,
    "torch.cuda.is_available": lambda: torch.cuda.is_available,
    "Categorical.sample": lambda: torch.distributions.Categorical.sample,
    "Normal.rsample": lambda: torch.distributions.Normal.rsample,
    "clip_grad_norm_": lambda: nn.utils.clip_grad_norm_,
    "np.random.choice": lambda: np.random.choice,
    "random.choices": lambda: random.choices,
    "random.choice": lambda: random.choice,
    "random.randint": lambda: random.randint,
    "torch.Tensor.register_hook": lambda: torch.Tensor.register_hook,
    "random.gauss": lambda: random.gauss,
    "gym.make": lambda: gym.make,
    "gym.make_vec": lambda: gym.make_vec,
}
CLASSES: dict[str, Callable[[], Any]] = {
    "AsyncVectorEnv": lambda: gym.vector.AsyncVectorEnv,
    "RandomState": lambda: np.random.RandomState,
    "autocast": lambda: torch.autocast,
    "Optimizer": lambda: torch.optim.Optimizer,
    "Env": lambda: gym.Env,
}


def run(program: Callable[[], object]) -> None:
    """Run ``program`` under interception, past the first reset of an environment."""

    def started() -> None:
        gym.make("CartPole-v1").reset()
        program()

    trace = execute(started, Job((), SIZES[0]))
    assert trace.outcome == "finished", f"{trace.detail} ({trace.file}:{trace.line})"


@pytest.mark.parametrize(
    ("name", "action", "kind"),
    [("Pendulum-v1", np.zeros(1, np.float32), np.float64), ("CartPole-v1", 0, float)],
)
def test_a_reward_is_a_numpy_number_where_it_is_computed_from_an_array(
    name: str, action: Any, kind: type
) -> None:
    def types() -> type:
        environment = gym.make(name)
        environment.reset()
        return type(environment.step(action)[1])

    seen: list[type] = []
    run(lambda: seen.append(types()))
    assert seen == [types()] == [kind]  # as of the environment itself


def looks(found: Any) -> tuple[str, str]:
    try:
        signature = str(inspect.signature(found))
    except ValueError:  # of a function in C: it has none, and so has what stands for it
        signature = "none"
    return found.__name__, signature


@pytest.mark.parametrize("name", NAMES)
def test_a_function_has_the_looks_of_what_it_replaces_and_can_be_pickled(name: str) -> None:
    reach = NAMES[name]
    stock = reach()
    before = looks(stock)

    def program() -> None:
        assert reach() is not stock
        assert looks(reach()) == before
        assert pickle.loads(pickle.dumps(reach())) is reach()

    run(program)
    assert reach() is stock


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_stays_a_class_that_others_can_inherit_from(name: str) -> None:
    reach = CLASSES[name]

    def program() -> None:
        assert isinstance(reach(), type)
        assert reach().__name__ == name
        assert issubclass(type("Own", (reach(),), {}), reach())

    run(program)


def test_generators_are_what_isinstance_takes_them_for_and_survive_a_copy() -> None:
    def program() -> None:
        generator, state = np.random.default_rng(0), np.random.RandomState(0)
        assert isinstance(generator, np.random.Generator)
        assert isinstance(state, np.random.RandomState)
        assert isinstance(np.random.mtrand._rand, np.random.RandomState)
        for made in (generator, state):
            for again in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
                assert type(again).__name__ == type(made).__name__
                # its numbers are followed as those of the first one are
                assert type(again.random()).__name__ == "NoiseFloat"

    run(program)


def test_what_is_scripted_runs_and_has_gradients() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, x: torch.Tensor) -> Any:
            return self.layer(x).log_softmax(-1)

    def program() -> None:
        jit: Any = torch.jit
        for net in (jit.script(Net()), jit.trace(Net(), torch.zeros(3))):
            net(torch.ones(3))[0].backward()
            assert all(p.grad is not None for p in net.parameters())

    run(program)
    assert torch.jit._state._enabled.enabled


def test_scores_within_vmap_of_grad_are_left_alone() -> None:
    net = nn.Linear(3, 2).double()
    weights = {name: p.detach() for name, p in net.named_parameters()}

    def log_prob(p: Any, x: torch.Tensor, action: torch.Tensor) -> Any:
        logits = functional_call(net, p, (x,))
        dist: Any = torch.distributions.Categorical(logits=logits, validate_args=False)
        return dist.log_prob(action) + torch.log_softmax(logits, -1).sum()

    def program() -> None:
        x, actions = torch.zeros(4, 3), torch.zeros(4, dtype=torch.long)
        made = vmap(grad(log_prob), in_dims=(None, 0, 0))(weights, x, actions)
        assert made["weight"].shape == (4, 2, 3)
        vmap(lambda row: row + torch.randn(3), randomness="different")(x)

    run(program)


def test_an_environment_has_its_spec_also_through_wrappers_and_a_copy_of_its_own() -> None:
    def program() -> None:
        made = gym.make("CartPole-v1")
        wrapped: Any = gym.wrappers.RecordEpisodeStatistics(gym.wrappers.ClipReward(made, -1, 1))
        assert isinstance(wrapped.spec, gym.envs.registration.EnvSpec)
        assert wrapped.spec.id == "CartPole-v1"
        assert wrapped.spec.max_episode_steps == SIZES[0].horizon
        assert gym.make_vec("CartPole-v1", num_envs=2).spec is not None
        other = copy.deepcopy(made)
        other.reset()
        other.step(0)

    run(program)


def test_what_make_returns_is_a_wrapper_that_can_be_pickled() -> None:
    def program() -> None:
        made = gym.make("CartPole-v1", render_mode="rgb_array")
        assert isinstance(made, gym.Wrapper)
        assert made.env.unwrapped is made.unwrapped
        assert made.render_mode == "rgb_array"
        made.reset()
        other = pickle.loads(pickle.dumps(gym.wrappers.RecordEpisodeStatistics(made)))
        other.step(0)
        assert (other.unwrapped.time, made.unwrapped.time) == (1, 0)  # type: ignore[attr-defined]
        assert other.reset()[0].shape == (4,)

    run(program)


def test_the_package_gym_has_what_gymnasium_has() -> None:
    def program() -> None:
        old = importlib.import_module("gym")
        assert old.ActionWrapper is gymnasium.ActionWrapper
        for name in ("envs.registration", "utils.seeding"):
            found = importlib.import_module(f"gym.{name}")
            assert found is importlib.import_module(f"gymnasium.{name}")
        found = importlib.import_module("gym.wrappers")
        assert found.ClipReward is gymnasium.wrappers.ClipReward
        old.logger.set_level(40)

    run(program)
    assert gymnasium.__spec__ is not None
    assert gymnasium.__spec__.name == "gymnasium"


def test_a_buffer_that_was_saved_can_be_loaded_during_an_audit_and_after_it() -> None:
    def program() -> None:
        buffer = io.BytesIO()
        torch.save(nn.Linear(2, 2).state_dict(), buffer)
        buffer.seek(0)
        assert "weight" in torch.load(buffer)

    run(program)
    buffer = io.BytesIO()
    torch.save(torch.zeros(2), buffer)
    buffer.seek(0)
    assert torch.load(buffer).dtype == torch.float32


def test_progress_bars_can_be_inherited_from(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(
        "from tqdm.auto import tqdm\n"
        "class Bar(tqdm):\n    pass\n"
        "with Bar(total=2) as bar:\n    bar.update(1)\n"
        "assert list(Bar([1, 2])) == [1, 2]\n",
        encoding="utf-8",
    )
    assert "no optimizer step" in el.audit_script(path).summary


def test_a_starred_unpacking_is_not_taken_for_the_old_interface(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(
        "import gymnasium as gym\n"
        "env = gym.make('CartPole-v1')\n"
        "obs, _ = env.reset()\n"
        "obs, r, *flags, _ = env.step(0)\n"
        "assert len(flags) == 2\n",
        encoding="utf-8",
    )
    assert "no optimizer step" in el.audit_script(path).summary


def test_a_loader_with_workers_loads_here() -> None:
    def program() -> None:
        loader: Any = torch.utils.data.DataLoader
        for made in (
            loader([1, 2, 3], batch_size=2, num_workers=2, persistent_workers=True),
            loader([1, 2, 3], 2, False, None, None, 2),
        ):
            assert [batch.tolist() for batch in made] == [[1, 2], [3]]

    run(program)
