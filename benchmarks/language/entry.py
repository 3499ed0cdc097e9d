"""One thing that is audited: a public function of a project at a commit, called on a batch."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from eligibility.audit.language.token_batch import TokenBatch

Loss = Callable[[Any, TokenBatch], Any]
BETA = 0.3  # the coefficient of every KL term


@dataclass(frozen=True)
class Project:
    """A project and where its package lies in a checkout.

    Attributes:
        repository: ``owner/name``.
        commit: The commit of "today" in the results; entries of a fault name their own.
        package_root: The folder of the checkout that holds the package.
        modules: What an entry's loss is given: name -> dotted module.
        executed: Packages whose ``__init__`` is needed.
        stand_ins: Modules that answer with given values at run time, and not only at import.
        replaced: Whether packages that are missing get stand-ins at import. Without them the
            interpreter must be that of an environment that has what the project needs.
    """

    repository: str
    commit: str
    package_root: str
    modules: Mapping[str, str]
    executed: tuple[str, ...] = ()
    stand_ins: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    replaced: bool = True


@dataclass(frozen=True)
class Entry:
    """A loss of a project.

    Attributes:
        name: What the results call it.
        project: Its project.
        loss: Called with the modules as attributes, and a batch.
        commit: Another commit than the project's.
        options: Of `audit_token_loss`.
        thread: The issue or pull request of a known fault.
        state: "today", or "before" or "after" the repair of that fault.
    """

    name: str
    project: Project
    loss: Loss
    commit: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    thread: str = ""
    state: str = "today"

    @property
    def revision(self) -> str:
        """The commit, or a parent of one (``abc^``)."""
        return self.commit or self.project.commit


class Config(SimpleNamespace):
    """A project's configuration, of which only what a loss reads is there."""

    def get(self, name: str, default: Any = None) -> Any:
        """As a dictionary's."""
        return getattr(self, name, default)


def leave_one_out(batch: TokenBatch) -> Tensor:
    """[B] rewards minus the mean of the other answers to the prompt: no bias of its own."""
    groups = batch.rewards.view(-1, batch.group_size)
    others = (groups.sum(1, keepdim=True) - groups) / (batch.group_size - 1)
    return (groups - others).flatten()


def by_token(batch: TokenBatch, advantage: Tensor) -> Tensor:
    """[B, T] the advantage of each answer at each of its tokens."""
    return advantage[:, None] * batch.mask


def prompts_of(batch: TokenBatch) -> Any:
    """[B] NumPy integers."""
    return batch.prompt.numpy()


def reinforce(batch: TokenBatch, advantage: Tensor) -> Tensor:
    """A loss without a bias of its own, for an advantage [B] or [B, T]."""
    weights = advantage if advantage.ndim == 2 else advantage[:, None]
    return -(batch.log_probs * weights * batch.mask).sum() / len(batch.rewards)


def with_penalty(batch: TokenBatch, penalty: Tensor) -> Tensor:
    """The same with a divergence in the loss, summed over tokens as the reward's term is."""
    return reinforce(batch, leave_one_out(batch)) + BETA * (penalty * batch.mask).sum() / len(
        batch.rewards
    )


def module_with(**attributes: Any) -> types.SimpleNamespace:
    """A stand-in with values."""
    return SimpleNamespace(**attributes)


def rows(batch: TokenBatch, values: Tensor) -> list[Tensor]:
    """Each row's tokens, without the padding."""
    return [row[: int(n)] for row, n in zip(values, batch.lengths, strict=True)]


def padded(parts: list[Tensor], width: int) -> Tensor:
    """The inverse of `rows`."""
    return torch.stack([torch.nn.functional.pad(part, (0, width - len(part))) for part in parts])
