"""The chain rule written out, beside automatic differentiation."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from eligibility.train.jacobian import AutogradJacobian, LayerJacobian, jacobian_of
from eligibility.train.learner import Reinforce

NUMBERS = spaces.Box(-1, 1, (3,), np.float32)
CASES: dict[str, tuple[spaces.Space[Any], spaces.Space[Any], dict[str, Any]]] = {
    "two layers": (NUMBERS, spaces.Discrete(3), {"hidden_sizes": (4, 5)}),
    "relu": (NUMBERS, spaces.Discrete(3), {"hidden_sizes": (4, 5), "activation": "relu"}),
    "a constant output": (NUMBERS, NUMBERS, {"hidden_sizes": (4,)}),
    "no hidden layer": (NUMBERS, spaces.Discrete(3), {"hidden_sizes": ()}),
    "normalised": (NUMBERS, spaces.Discrete(3), {"normalize_observations": True}),
    "a table": (spaces.Discrete(200), spaces.Discrete(3), {"hidden_sizes": ()}),
    "many indices": (
        spaces.MultiDiscrete([90, 80]), spaces.Discrete(3), {"hidden_sizes": (4,)}
    ),
    "masked": (
        spaces.Dict(seen=NUMBERS, action_mask=spaces.MultiBinary(3)),
        spaces.Discrete(3),
        {"hidden_sizes": (4,)},
    ),
    "an image": (spaces.Box(0, 255, (8, 8, 3), np.uint8), spaces.Discrete(3), {}),
    "recurrent": (NUMBERS, spaces.Discrete(3), {"recurrent": "gru"}),
}  # fmt: skip


class Random(gymnasium.Env[Any, Any]):
    def __init__(self, seen: spaces.Space[Any], done: spaces.Space[Any]) -> None:
        self.observation_space, self.action_space = seen, done

    def _look(self) -> Any:
        seen = self.observation_space.sample()
        if isinstance(seen, dict):
            seen["action_mask"][0] = 1  # something is allowed
        return seen

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self._look(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self._look(), 1.0, bool(self.np_random.random() < 0.1), False, {}


@pytest.mark.parametrize("name", CASES)
def test_both_products_are_those_of_autograd(name: str) -> None:
    seen, done, options = CASES[name]
    model = Reinforce(lambda: Random(seen, done), environments=2, seed=1, **options).learn(10)
    rollout = model.shards.collect(model.network, 1)
    places = rollout.alive
    arguments = model.network, rollout.observations[places], places.nonzero()[:, 1]
    by_layers, wanted = jacobian_of(*arguments), AutogradJacobian(*arguments)
    assert isinstance(by_layers, LayerJacobian) == (name not in ("an image", "recurrent"))
    torch.testing.assert_close(by_layers.outputs, wanted.outputs)
    vector = torch.randn(sum(p.numel() for p in model.network.parameters()))
    torch.testing.assert_close(by_layers.push(vector), wanted.push(vector), rtol=1e-4, atol=1e-5)
    cotangent = torch.randn_like(wanted.outputs)
    torch.testing.assert_close(
        by_layers.pull(cotangent), wanted.pull(cotangent), rtol=1e-4, atol=1e-5
    )
