"""What a program meets beside its problem: packages that do nothing, no accelerator, no files."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from pathlib import Path

import gymnasium
import pytest
import torch
from torch import nn

from eligibility.audit.interception import surroundings
from eligibility.audit.job import SIZES, Job
from eligibility.audit.running.execution import execute


def run(program: Callable[[], object], *, four_tuple: bool = False) -> None:
    trace = execute(program, Job((), SIZES[0]), four_tuple=four_tuple)
    assert (trace.outcome, trace.detail) == ("finished", "")


def test_a_class_of_an_inert_package_is_inherited_from_caught_and_warned_with() -> None:
    def program() -> None:
        wandb = importlib.import_module("wandb")
        made = type("Mine", (wandb.Callback,), {})()
        assert isinstance(made, wandb.Callback)
        assert list(made.log(1)) == []
        warnings.simplefilter("ignore", category=wandb.SomeWarning)
        try:
            raise wandb.CommError
        except wandb.CommError:
            pass

    run(program)


def test_a_package_for_tables_is_inert_only_where_it_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(surroundings, "_INERT_IF_MISSING", {"rich", "no_such_tables"})

    def program() -> None:
        assert importlib.import_module("rich").__file__
        importlib.import_module("no_such_tables").DataFrame([1]).to_csv("results.csv")

    run(program)


def test_a_progress_bar_of_notebooks_needs_no_widgets() -> None:
    importlib.import_module("tqdm.notebook")  # as transformers does before a program runs

    def program() -> None:
        tqdm = importlib.import_module("tqdm")
        assert [*tqdm.tqdm_notebook(range(3))] == [0, 1, 2]

    run(program)


def test_what_is_sent_to_an_accelerator_stays_on_the_processor() -> None:
    def program() -> None:
        model = nn.Linear(2, 1).to("cuda:1").cuda()
        data = torch.zeros(2).to(device=torch.device("cuda:0"), dtype=torch.float64).cuda()
        assert model(data).device.type == "cpu"
        torch.set_default_device("cuda")
        torch.cuda.manual_seed_all(1)
        made = nn.Linear(2, 1, device="cuda"), torch.ones(2, device=torch.device("mps"))
        assert made[0](made[1]).device.type == "cpu"
        torch.save(made[0].state_dict(), "model.pt")
        assert torch.load("model.pt", map_location="cuda:0")["weight"].device.type == "cpu"

    before = torch.Tensor.to, nn.Module.to, torch.Tensor.cuda
    run(program)
    assert (torch.Tensor.to, nn.Module.to, torch.Tensor.cuda) == before


def test_what_an_inert_function_returns_can_be_unpacked() -> None:
    def program() -> None:
        plt = importlib.import_module("matplotlib.pyplot")
        figure, (left, right) = plt.subplots(1, 2)
        (line,) = left.plot([1, 2])
        line.set_data(figure, right)
        assert [*plt.get_fignums()] == []

    run(program)


def test_a_question_at_the_keyboard_is_answered_by_enter_and_not_for_ever() -> None:
    def program() -> None:
        assert [input("go on?") for _ in range(3)] == [""] * 3
        with pytest.raises(EOFError, match="EOF when reading a line"):
            input()

    run(program)


def test_a_film_that_an_inert_package_was_to_write_is_empty(tmp_path: Path) -> None:
    def program() -> None:
        with open(tmp_path / "cartpole.mp4", "rb") as film:
            assert film.read() == b""
        with pytest.raises(FileNotFoundError):
            open(tmp_path / "weights.bin", "rb").close()

    run(program)


def test_a_semaphore_of_the_system_is_made_by_keywords_too() -> None:
    def program() -> None:
        made = importlib.import_module("_multiprocessing").SemLock(
            kind=1, value=0, maxvalue=1, name="/some", unlink=True
        )
        made.release()
        assert made.acquire()

    run(program)


def test_random_numbers_of_a_space_are_the_same_in_every_run() -> None:
    """A vector's space copies the generator of its environments'."""

    def program() -> None:
        drawn = [gymnasium.spaces.Discrete(2).np_random.random() for _ in range(2)]
        assert drawn[0] == drawn[1]

    run(program)


def test_the_limit_of_an_episode_is_found_by_its_old_name() -> None:
    def program() -> None:
        spec = gymnasium.make("CartPole-v1").spec
        assert spec.timestep_limit == spec.max_episode_steps == 3

    run(program)


def test_old_attributes_of_an_environment_are_there() -> None:
    def program() -> None:
        made = gymnasium.make("CartPole-v1")
        assert made.reward_range == (-float("inf"), float("inf"))

    run(program)

    def old() -> None:
        made = gymnasium.make("CartPole-v1")
        made.np_random.seed(made.np_random.randint(5000))

    run(old, four_tuple=True)


def test_environments_of_the_old_gym_are_rendered_with_a_mode_and_have_a_range() -> None:
    def program() -> None:
        class Own(gymnasium.Env[int, int]):
            observation_space = action_space = gymnasium.spaces.Discrete(2)

        assert Own().reward_range[0] == -float("inf")
        made = gymnasium.wrappers.TimeLimit(gymnasium.make("CartPole-v1"), 3)
        assert made.render(mode="rgb_array").shape == (8, 8, 3)

    run(program, four_tuple=True)
    assert not hasattr(gymnasium.Env, "reward_range")


def test_a_model_that_is_saved_can_be_loaded_and_no_file_is_written(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "model.pt"

    def program() -> None:
        torch.save({"weight": torch.ones(2)}, path)
        assert torch.load(str(path), weights_only=True)["weight"].tolist() == [1.0, 1.0]

    run(program)
    assert not path.parent.exists()
