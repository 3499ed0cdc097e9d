"""Where environments come from: an id, a function that makes one, one to copy, or a vector."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import gymnasium
from gymnasium.vector import AutoresetMode, VectorEnv

from eligibility.errors import EligibilityError, InvalidTypeError, InvalidValueError
from eligibility.train.domains import shown
from eligibility.train.environments import make_vector
from eligibility.train.vectors import OneEpisodeVector, Resetting, with_seeds_that_fit

if TYPE_CHECKING:
    # An id, a function that makes one environment, one to make copies of, or a vector environment.
    EnvironmentLike = (
        str
        | Callable[[], gymnasium.Env[Any, Any]]
        | gymnasium.Env[Any, Any]
        | VectorEnv[Any, Any, Any]
    )


@dataclass(frozen=True)
class EnvironmentSource:
    """What environments are made of."""

    name: str  # the id, or the name of the function or class
    coded: bool  # whether it is the user's code, which a checkpoint does not hold
    # The given number of environments side by side, made with keywords; a vector environment of the
    # user's own is always itself, and may have fewer.
    make: Callable[[int, Mapping[str, Any] | None], VectorEnv[Any, Any, Any]]
    size: int | None = None  # the number that there always are; None: as many as asked for

    def options(self, options: dict[str, Any]) -> dict[str, Any]:
        """The user's options with the number of environments that there are, over all shards."""
        if self.size is None:
            return options
        number = self.size * int(options.get("shards", 1))
        if options.get("environments", number) != number:
            raise InvalidValueError(
                "`environments`",
                str(options["environments"]),
                f"{number}, the size of the vector environment in each shard",
                "omit it",
            )
        return {**options, "environments": number}

    def check_shards(self, number: int) -> None:
        """Raise if a vector environment of the user's own would have to be several."""
        if self.size is not None and number > 1:
            raise InvalidValueError(
                "`shards`",
                f"{number} in this process",
                "one for a vector environment",
                "pass a function that creates one environment",
            )

    def close(self, vector: VectorEnv[Any, Any, Any]) -> None:
        """Close environments that `make` made; the user's own are the user's to close."""
        if self.size is None:
            vector.close()


def environment_source(env: EnvironmentLike) -> EnvironmentSource:
    """The source for what the user passed as ``env``; an environment is copied, never stepped."""
    if isinstance(env, str):
        return EnvironmentSource(env, False, partial(make_vector, env))
    if isinstance(env, VectorEnv):
        vector = with_seeds_that_fit(env)
        if vector.metadata.get("autoreset_mode") == AutoresetMode.DISABLED:
            vector = Resetting(vector)
        return EnvironmentSource(
            _name(env), True, lambda _, given: _as_is(vector, given), env.num_envs
        )
    if isinstance(env, gymnasium.Env):
        copied = partial(_copy, env)
        return EnvironmentSource(
            _name(env), True, lambda number, given: _several(_as_is(copied, given), number)
        )
    if callable(env):
        function = env
        name = getattr(env, "__qualname__", type(env).__name__)
        return EnvironmentSource(
            name, True, lambda number, given: _several(partial(function, **(given or {})), number)
        )
    raise InvalidTypeError(
        "`env`",
        type(env).__name__,
        "an environment, its id, a function that creates one, or a vector environment",
        "pass a function, such as the environment's class or a lambda",
    )


def _as_is(made: Any, keywords: Mapping[str, Any] | None) -> Any:
    """What is made already: keywords to make it with are refused."""
    if keywords:
        raise InvalidValueError(
            "`env_kwargs`",
            shown(keywords),
            "none with an existing environment",
            "create it with them, or pass its id or a function that creates it",
        )
    return made


def _name(env: Any) -> str:
    """The id of an environment, if it has one."""
    return env.spec.id if env.spec is not None else type(env).__name__


def _copy(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """A copy, or, where that is impossible, what Gymnasium makes by the same ``spec``."""
    try:
        return deepcopy(env)
    except Exception:  # a simulator in C, or a window
        if env.spec is None:
            raise
        return gymnasium.make(env.spec)


def _several(function: Callable[[], Any], number: int) -> VectorEnv[Any, Any, Any]:
    def make() -> Any:
        environment = function()
        if not isinstance(environment, gymnasium.Env):
            raise InvalidTypeError(
                "what `env` returned",
                type(environment).__name__,
                "a gymnasium.Env",
                "return a new environment in each call",
            )
        return environment

    try:
        vector = OneEpisodeVector([make] * number)
    except EligibilityError:
        raise
    except Exception as error:  # its constructor is anybody's code
        raise EligibilityError(
            "making the environment with `env`",
            f"{type(error).__name__}: {error}",
            "no exception",
            "correct the function, or pass one if this was an environment",
        ) from error
    vector.spec = vector.envs[0].spec
    return vector
