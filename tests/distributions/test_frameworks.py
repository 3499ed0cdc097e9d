"""The drop-ins inside policies of Stable-Baselines3 and TorchRL."""

from __future__ import annotations

from typing import Any

import gymnasium
import pytest
import torch
from torch import Tensor, nn

import eligibility as el

# What these packages and the versions of torch and Gymnasium they meet warn about is theirs.
pytestmark = pytest.mark.filterwarnings("ignore")

stable_baselines3 = pytest.importorskip("stable_baselines3")
torchrl_modules = pytest.importorskip("torchrl.modules")
# Importing TorchRL turns torch's validation off for the whole process; other tests rely on it.
torch.distributions.Distribution.set_default_validate_args(True)


class Buttons(gymnasium.Env[Any, Any]):
    """Three buttons: the reward is how many are as the observation says."""

    observation_space = gymnasium.spaces.Box(0, 1, (3,))
    action_space = gymnasium.spaces.MultiBinary(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._wanted = self.np_random.integers(0, 2, 3).astype("float32")
        return self._wanted, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self._wanted, float((action == self._wanted).sum()), True, False, {}


@pytest.mark.parametrize(
    ("environment", "name"), [("CartPole-v1", "Categorical"), (Buttons, "Bernoulli")]
)
def test_stable_baselines3_trains_with_the_drop_in(
    monkeypatch: pytest.MonkeyPatch, environment: Any, name: str
) -> None:
    from stable_baselines3.common import distributions

    env = gymnasium.make(environment) if isinstance(environment, str) else environment()
    model = stable_baselines3.PPO(
        "MlpPolicy", env, n_steps=64, batch_size=32, n_epochs=2, seed=0, device="cpu"
    )
    observation = torch.rand(5, *env.observation_space.shape)
    actions = torch.stack([torch.as_tensor(env.action_space.sample()) for _ in range(5)])
    actions = actions.long() if name == "Categorical" else actions.float()
    stock = model.policy.evaluate_actions(observation, actions)
    before = nn.utils.parameters_to_vector(model.policy.parameters()).clone()
    monkeypatch.setattr(distributions, name, getattr(el, name))
    assert isinstance(model.policy.get_distribution(observation).distribution, getattr(el, name))
    for ours, theirs in zip(
        model.policy.evaluate_actions(observation, actions), stock, strict=True
    ):
        torch.testing.assert_close(ours, theirs)
    model.learn(128)
    after = nn.utils.parameters_to_vector(model.policy.parameters())
    assert after.isfinite().all()
    assert not torch.equal(before, after)
    assert env.action_space.contains(model.predict(observation[0].numpy(), deterministic=True)[0])


def actor(distribution: Any, keys: list[str]) -> Any:
    from tensordict.nn import TensorDictModule

    torch.manual_seed(0)
    network = TensorDictModule(nn.Linear(4, 3), in_keys=["observation"], out_keys=["logits"])
    return torchrl_modules.ProbabilisticActor(
        network, in_keys=keys, distribution_class=distribution, return_log_prob=True
    )


@pytest.mark.parametrize("name", ["Categorical", "OneHotCategorical"])
def test_torchrl_reinforces_with_the_drop_in(name: str) -> None:
    from tensordict import TensorDict
    from torchrl.objectives import ReinforceLoss

    gradients: list[Tensor] = []
    observation = torch.rand(6, 4, generator=torch.Generator().manual_seed(1))
    action = None
    for module in (el, torch.distributions):
        policy = actor(getattr(module, name), ["logits"])
        data = policy(TensorDict({"observation": observation}, [6]))
        assert isinstance(policy.get_dist(data), getattr(module, name))
        action = data["action"] if action is None else action
        data["action"], data["advantage"] = action, torch.arange(6.0).unsqueeze(-1)
        data["value_target"] = torch.zeros(6, 1)
        critic = torchrl_modules.ValueOperator(nn.Linear(4, 1), in_keys=["observation"])
        ReinforceLoss(policy, critic)(data)["loss_actor"].backward()
        gradients.append(nn.utils.parameters_to_vector(p.grad for p in policy.parameters()))
    torch.testing.assert_close(*gradients)
    assert gradients[0].abs().max() > 0


def test_torchrl_passes_a_mask_to_the_drop_in() -> None:
    from tensordict import TensorDict

    mask = torch.tensor([True, False, True])
    policy = actor(el.Categorical, ["logits", "mask"])
    data = policy(TensorDict({"observation": torch.rand(50, 4), "mask": mask.expand(50, 3)}, [50]))
    assert not (data["action"] == 1).any()
    greedy = policy.get_dist(data).mode
    assert not (greedy == 1).any()
