"""Loss modules of TorchRL: their own actor plays the probe, and they are given a TensorDict."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

import gymnasium
import torch
from torch import Tensor, nn

from eligibility.errors import InvalidTypeError

_ENDS = ("terminated", "truncated")


def takes_tensordict(module: nn.Module) -> bool:
    """Whether ``forward`` is called with a TensorDict."""
    return "tensordict" in inspect.signature(module.forward).parameters


def training_of(module: nn.Module, environment: str, episodes: int) -> Callable[[], None]:
    """A program that trains ``module`` as TorchRL's training loops do.

    Each step of a batch [T] has ``observation``, what the actor adds (``action``,
    ``action_log_prob``), and under ``next`` the following observation, ``reward``, ``done``,
    ``terminated`` and ``truncated`` [T, 1]. The loss is the sum of the outputs named ``loss_…``.
    """
    if getattr(module, "actor_network", None) is None:
        raise InvalidTypeError(
            f"`module` ({type(module).__name__})",
            "a forward(tensordict) without an `actor_network`",
            "a loss module of torchrl.objectives",
            "wrap it in a module whose forward takes log_probs and returns",
        )

    def program() -> None:
        made: Any = gymnasium.make(environment)
        loss_module: Any = copy.deepcopy(module).to(torch.get_default_dtype())
        optimizer = torch.optim.SGD(loss_module.parameters(), lr=1e-2)
        while True:
            rows = [row for _ in range(episodes) for row in _episode(made, loss_module)]
            losses = loss_module(torch.stack(rows)).items()
            parts = [value.sum() for name, value in losses if name.startswith("loss_")]
            total: Any = sum(parts, start=torch.zeros(()))
            optimizer.zero_grad()
            total.backward()
            optimizer.step()

    return program


def _episode(environment: Any, loss_module: Any) -> list[Any]:
    from tensordict import TensorDict  # type: ignore[import-untyped]  # ships no types
    from tensordict.nn import (  # type: ignore[import-untyped]  # ships no types
        InteractionType,
        set_interaction_type,
    )

    rows = []
    observation, _ = environment.reset()
    ended = False
    while not ended:
        row = TensorDict({"observation": torch.as_tensor(observation)}, [])
        actor, kept = loss_module.actor_network, loss_module.actor_network_params
        sampling = set_interaction_type(InteractionType.RANDOM)  # as collectors do
        with torch.no_grad(), kept.to_module(actor), sampling:
            row = actor(row)
        observation, reward, *ends, _ = environment.step(_executed(row["action"], environment))
        ended = any(ends)
        following = {
            "observation": torch.as_tensor(observation),
            "reward": torch.tensor([reward]),
            "done": torch.tensor([ended]),
        }
        flags = {name: torch.tensor([flag]) for name, flag in zip(_ENDS, ends, strict=True)}
        row["next"] = TensorDict(following | flags, [])
        rows.append(row)
    return rows


def _executed(action: Tensor, environment: Any) -> Any:
    """The action as the environment takes it: an index also where the actor gives one-hot."""
    space = environment.action_space
    if not isinstance(space, gymnasium.spaces.Discrete):
        return action.numpy()
    return int(action.argmax(-1) if action.ndim else action)
