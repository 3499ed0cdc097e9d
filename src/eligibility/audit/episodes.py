"""Episodes that the audit plays for a part of a program, and what is filled in by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Categorical

_COLUMNS = ("logits", "actions", "log_probs", "entropy", "rewards", "terminated", "truncated")
_ALIASES = {
    "log_prob": "log_probs",
    "action": "actions",
    "advantages": "returns",
    "advantage": "returns",
    "entropies": "entropy",
}
FILLED = {*_COLUMNS, *_ALIASES, "returns", "old_log_probs", "dones", "mask"}


def play(environment: Any, agent: Any, choose: Callable[[Any], Any]) -> dict[str, list[Any]]:
    """One episode; what happened, and the rewards in the agent's own list if it keeps one."""
    record: dict[str, list[Any]] = {
        name: [] for name in ("observations", "actions", "rewards", "terminated", "truncated")
    }
    observation, _ = environment.reset()
    while True:
        chosen = choose(observation)
        action = chosen[0] if isinstance(chosen, tuple) else chosen
        following, reward, terminated, truncated, _ = environment.step(action)
        row = (observation, action, reward, terminated, truncated)
        for items, item in zip(record.values(), row, strict=True):
            items.append(item)
        if isinstance(getattr(agent, "rewards", None), list):
            agent.rewards.append(reward)
        observation = following
        if terminated or truncated:
            return record


def episode_of(environment: Any, policy: nn.Module, discount: float) -> dict[str, Tensor]:
    """One episode of a softmax policy: [T] of each of the names in a loss."""
    columns: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
    observation, _ = environment.reset()
    ended = False
    while not ended:
        logits = policy(torch.as_tensor(observation))
        dist: Any = Categorical(logits=logits)
        action = dist.sample()
        observation, reward, terminated, truncated, _ = environment.step(action.item())
        ended = terminated or truncated
        row = (logits, action, dist.log_prob(action), dist.entropy(), reward, terminated, truncated)
        for name, item in zip(_COLUMNS, row, strict=True):
            columns[name].append(torch.as_tensor(item))
    episode = {name: torch.stack(items) for name, items in columns.items()}
    running = 0.0
    returns: list[float] = []
    for reward in reversed(episode["rewards"].tolist()):
        running = reward + discount * running
        returns.insert(0, running)
    episode["rewards"] = episode["rewards"].to(torch.get_default_dtype())
    return episode | {"returns": torch.tensor(returns)}


def concatenated(batch: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """[T]: the steps of all episodes one after the other, under every name."""
    filled = {name: torch.cat([e[name] for e in batch]) for name in batch[0]}
    filled["old_log_probs"] = filled["log_probs"].detach()
    filled["dones"] = filled["terminated"] | filled["truncated"]
    return filled | {alias: filled[name] for alias, name in _ALIASES.items()}
