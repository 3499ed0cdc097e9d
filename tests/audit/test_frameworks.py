"""Programs that train with a framework, as their users write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict.nn import TensorDictModule
from torch import Tensor, nn
from torch.distributions import Categorical
from torchrl.modules import ProbabilisticActor, ValueOperator
from torchrl.objectives import A2CLoss, ReinforceLoss

import eligibility as el
from eligibility.errors import InvalidTypeError

SB3 = """
import gymnasium as gym
from stable_baselines3 import {name}

env = gym.make("CartPole-v1")
model = {name}("MlpPolicy", env, {arguments}, policy_kwargs={{"net_arch": [4]}})
model.learn(total_timesteps=10_000)
"""


@pytest.mark.parametrize(
    ("name", "arguments", "rule"),
    [
        ("A2C", "n_steps=2", "0.5 × generalised advantage (λ = 1) (γ = 0.99)"),
        # the defaults of its loss: advantages over their deviation plus 1e-8, clipped ratios of 1
        (
            "PPO",
            "n_steps=4, batch_size=4, n_epochs=1",
            "0.25 × generalised advantage (λ = 0.95) (γ = 0.99), whitened",
        ),
        (
            "PPO",
            "n_steps=4, batch_size=4, n_epochs=1, ent_coef=0.01",
            "0.25 × generalised advantage (λ = 0.95) (γ = 0.99), whitened, plus 0.01 × entropy",
        ),
        (
            "PPO",
            "n_steps=2, batch_size=2, n_epochs=2, normalize_advantage=False, ent_coef=0.01",
            "1 × generalised advantage (λ = 0.95) (γ = 0.99), plus 0.01 × entropy",
        ),
    ],
)
def test_stable_baselines3_up_to_its_first_update(
    tmp_path: Path, name: str, arguments: str, rule: str
) -> None:
    path = tmp_path / "train.py"
    path.write_text(SB3.format(name=name, arguments=arguments), encoding="utf-8")
    # batches of two steps: their mean is half of their sum; and PPO makes two such updates
    report = el.audit_script(path, max_paths=80)
    assert report.verdict == "convention", report.text()
    assert report.rule == rule
    named = {convention.name for convention in report.conventions}
    estimated = "gae" if name == "PPO" else "bootstrapped"
    assert {estimated, "gamma-t-dropped"} <= named
    assert not report.findings


def test_stable_baselines3_with_numbers_that_are_divided_by_running_deviations(
    tmp_path: Path,
) -> None:
    text = SB3.format(name="A2C", arguments="n_steps=2")
    text = text.replace(
        "model =", "single = env\nenv = VecNormalize(DummyVecEnv([lambda: single]))\nmodel ="
    )
    kinds = "from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize\n"
    path = tmp_path / "train.py"
    path.write_text(kinds + text, encoding="utf-8")
    report = el.audit_script(path, max_paths=80)
    assert report.rule == "0.5 × generalised advantage (λ = 1) (γ = 0.99)", report.text()
    assert "running-normalisation" in {convention.name for convention in report.conventions}
    assert not report.findings


def networks() -> tuple[Any, Any]:
    torch.manual_seed(0)
    scorer = TensorDictModule(nn.Linear(4, 2), in_keys=["observation"], out_keys=["logits"])
    actor = ProbabilisticActor(
        scorer, in_keys=["logits"], distribution_class=Categorical, return_log_prob=True
    )
    return actor, ValueOperator(nn.Linear(4, 1), in_keys=["observation"])


@pytest.mark.parametrize("kind", [ReinforceLoss, A2CLoss])
def test_a_loss_module_of_torchrl_plays_with_its_own_actor(kind: type[Any]) -> None:
    module = kind(*networks())
    before = {name: value.clone() for name, value in module.state_dict().items()}
    report = el.audit_module(module, discount=0.99)
    assert report.verdict == "convention", report.text()
    named = {convention.name for convention in report.conventions}
    assert {"gae", "gamma-t-dropped", "mean-over-time"} <= named
    assert ("entropy-bonus" in named) == (kind is A2CLoss)
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())


def test_the_wrong_sign_in_a_subclass_of_a_torchrl_loss_is_found() -> None:
    class Ascending(ReinforceLoss):
        def forward(self, tensordict: Any) -> Any:
            losses = super().forward(tensordict)
            losses["loss_actor"] = -losses["loss_actor"]
            return losses

    assert el.audit_module(Ascending(*networks()), discount=0.99).verdict == "wrong-sign"


def test_a_tensordict_module_without_an_actor_is_refused() -> None:
    class Bare(nn.Module):
        def forward(self, tensordict: Any) -> Any:
            return tensordict

    with pytest.raises(InvalidTypeError, match="a forward\\(tensordict\\) without an"):
        el.audit_module(Bare())


def token_loss(log_probs: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """Per sequence: the mean over its tokens; then the mean over the sequences."""
    per_token = -log_probs * advantages[:, None] * mask
    return (per_token.sum(-1) / mask.sum(-1)).mean()


def test_a_loss_over_tokens_with_a_mean_over_each_sequence_is_named() -> None:
    report = el.audit_loss(token_loss, episodes=2, discount=1.0, max_paths=60)
    assert report.verdict == "convention", report.text()
    assert "mean-over-each-episode" in {convention.name for convention in report.conventions}
    assert not report.ok()
    assert report.ok(conventions={"mean-over-each-episode"})
