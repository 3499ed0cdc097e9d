"""Rollouts: one whole episode of every environment, started by a full reset.

Every environment contributes exactly one episode, whatever its length, so short episodes are not
over-represented, as they are when a fixed number of steps is collected and the rest thrown away.
An environment that has finished goes on stepping, in whatever way it resets itself, and what it
does then is masked out (``alive``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from eligibility.errors import EligibilityError, InvalidValueError
from eligibility.train.network import acting
from eligibility.train.policy_spaces import Interface

# Rows of noise drawn at once: many, because each draw has a fixed cost; not all, because most
# episodes are shorter than the longest possible.
_NOISE_ROWS = 64
# Rows that there is room for at first: an episode may be allowed to be far longer than any is.
_FIRST_ROWS = 1024


@dataclass(frozen=True)
class Rollout:
    """B episodes side by side, T steps of the longest."""

    observations: Tensor  # what was seen before each action, ``[T, B, *observation]``
    # What was seen after each episode's last action, ``[B, *observation]``.
    final_observations: Tensor
    actions: Tensor  # ``[T, B, *action]``
    rewards: Tensor  # float64 ``[T, B]``; 0 where not alive
    terminated: Tensor  # the task ended with this step, ``[T, B]``
    truncated: Tensor  # the episode was cut off after this step, ``[T, B]``
    alive: Tensor  # False after the episode's last step, ``[T, B]``

    @property
    def steps(self) -> int:
        """The number of steps that count."""
        return int(self.alive.sum())

    @property
    def episode_returns(self) -> list[float]:
        """The undiscounted return of each episode, in the order of the environments."""
        returns: list[float] = self.rewards.sum(0).tolist()
        return returns


def side_by_side(rollouts: list[Rollout]) -> Rollout:
    """The episodes of several rollouts as one rollout, in their order."""
    if len(rollouts) == 1:
        return rollouts[0]
    rows = max(len(rollout.rewards) for rollout in rollouts)
    return Rollout(
        **{
            part.name: torch.cat([padded(getattr(r, part.name), rows) for r in rollouts], 1)
            for part in fields(Rollout)
            if part.name != "final_observations"
        },
        final_observations=torch.cat([rollout.final_observations for rollout in rollouts]),
    )


def padded(tensor: Tensor, rows: int) -> Tensor:
    """``tensor`` with zeros below, ``rows`` rows in all."""
    return torch.cat([tensor, tensor.new_zeros(rows - len(tensor), *tensor.shape[1:])])


class Collector:
    """Collects rollouts into buffers that it keeps; each rollout overwrites the last."""

    def __init__(self, interface: Interface, horizon: int) -> None:
        vector, observations, policy = interface
        number = vector.num_envs
        self.vector, self.policy, self.horizon = vector, policy, horizon
        self._keep, self._read = observations.keep, observations.read
        self._noise = torch.empty(
            _NOISE_ROWS, number, *policy.noise_shape, dtype=policy.noise_dtype
        )
        self._noises = self._noise.unbind()
        self._notes = torch.empty(
            0, number, *policy.action_shape, dtype=policy.action_dtype
        ).numpy()
        self._observations = np.empty((0, number, *observations.shape), observations.dtype)
        self._rewards = np.empty((0, number))
        self._terminated, self._truncated, self._alive = np.empty((3, 0, number), bool)
        self._grow(min(horizon, _FIRST_ROWS))

    def _grow(self, rows: int) -> None:
        """Make room for that number of rows; the present ones stay."""
        self._notes = _longer(self._notes, rows)
        self._actions = torch.from_numpy(self._notes)
        self._observations = _longer(self._observations, rows + 1)
        # Rows as tensors: made once, because making one takes as long as a step of arithmetic.
        self._seen = torch.from_numpy(self._observations).unbind()
        self._rewards, self._alive = _longer(self._rewards, rows), _longer(self._alive, rows)
        self._terminated = _longer(self._terminated, rows)
        self._truncated = _longer(self._truncated, rows)

    def collect(
        self, network: nn.Module, reset_seed: int, generator: torch.Generator | None
    ) -> Rollout:
        """One episode of every environment; with no generator, by the policy's modes."""
        number = self.vector.num_envs
        forward = acting(network, number)
        alive = np.ones(number, bool)
        observation = self._keep(self._environment(self.vector.reset, seed=reset_seed)[0])
        row = 0
        while row < self.horizon and np.count_nonzero(alive):
            if row == len(self._rewards):
                self._grow(min(2 * row, self.horizon))
            np.copyto(self._observations[row], observation, casting="same_kind")
            action = self._act(forward, row, generator)
            observation, reward, terminated, truncated, info = self._environment(
                self.vector.step, self.policy.to_environment(action)
            )
            self._rewards[row], self._alive[row] = reward, alive
            self._terminated[row], self._truncated[row] = terminated, truncated
            np.greater(alive, terminated | truncated, out=alive)
            row += 1
            observation = self._keep(observation)
            if "final_obs" in info:  # it was reset in the same step
                observation = self._before_reset(observation, info)
        np.copyto(self._observations[row], observation, casting="same_kind")
        return self._rollout(row)

    def _act(
        self, forward: Callable[[Tensor], Tensor], row: int, generator: torch.Generator | None
    ) -> Tensor:
        """Choose the actions of a row from its observations, and note them down."""
        outputs = forward(self._seen[row])
        if generator is None:
            action = self.policy.mode(outputs)
        else:
            if row % _NOISE_ROWS == 0:
                self.policy.fill_noise(self._noise, generator)
            action = self.policy.sample(outputs, self._noises[row % _NOISE_ROWS])
        self._notes[row] = action.numpy()
        return action

    def _rollout(self, rows: int) -> Rollout:
        """The first ``rows`` rows, masked and checked."""
        alive = self._alive[:rows]
        rewards = np.where(alive, self._rewards[:rows], 0)
        _check_finite("reward", rewards)
        observations = self._observations[:rows]
        if observations.dtype.kind == "f" and not np.isfinite(observations).all():
            dead = ~alive.reshape(alive.shape + (1,) * (observations.ndim - 2))
            _check_finite("observation", np.where(dead, 0, observations))
        self._truncated[rows - 1] |= ~self._terminated[rows - 1]
        environments = np.arange(alive.shape[1])
        final = self._observations[alive.sum(0), environments]
        return Rollout(
            observations=torch.from_numpy(observations),
            final_observations=torch.from_numpy(final),
            actions=self._actions[:rows],
            rewards=torch.from_numpy(rewards),
            terminated=torch.from_numpy(self._terminated[:rows] & alive),
            truncated=torch.from_numpy(self._truncated[:rows] & alive),
            alive=torch.from_numpy(alive),
        )

    def _before_reset(
        self, kept: np.ndarray[Any, Any], info: dict[str, Any]
    ) -> np.ndarray[Any, Any]:
        """The observations, with those that ended an episode in place of those that began one."""
        merged = np.array(kept)
        for environment in np.flatnonzero(info["_final_obs"]):
            merged[environment] = self._read(info["final_obs"][environment])[0][0]
        return merged

    @staticmethod
    def _environment(method: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call the environment; whatever it raises becomes one error of ours."""
        try:
            return method(*arguments, **options)
        except EligibilityError:  # of ours, about a mask
            raise
        except Exception as error:  # an environment is anybody's code
            raise EligibilityError(
                f"the environment's {method.__name__}",
                f"{type(error).__name__}: {error}",
                "no exception",
                "correct the environment; the policy trained so far is kept",
            ) from error


def _longer(array: np.ndarray[Any, Any], rows: int) -> np.ndarray[Any, Any]:
    """A copy with room for that number of rows."""
    shape = (rows, *array.shape[1:])
    try:
        longer = np.empty(shape, array.dtype)
    except (MemoryError, ValueError) as error:  # ValueError: more than can be numbered
        raise InvalidValueError(
            "the memory for a rollout",
            f"none for {array.dtype} {list(shape)} (steps, environments, …)",
            "room for the longest episode",
            "choose fewer environments, or cut episodes with max_episode_steps",
        ) from error
    longer[: len(array)] = array
    return longer


def _check_finite(name: str, values: np.ndarray[Any, Any]) -> None:
    finite = np.isfinite(values)
    if finite.all():
        return
    step, environment, *_ = (int(axis[0]) for axis in np.nonzero(~finite))
    raise InvalidValueError(
        f"the {name} at step {step} of environment {environment}",
        str(values[~finite][0]),
        "a finite number",
        "correct the environment; the policy trained so far is kept",
    )
