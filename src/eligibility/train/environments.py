"""Vector environments by id, and what of their spaces is supported."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from eligibility.errors import InvalidValueError, MissingDependencyError

if TYPE_CHECKING:
    from gymnasium.vector import VectorEnv

DEFAULT_HORIZON = 1000


def make_vector(env: str, environments: int) -> VectorEnv[Any, Any, Any]:
    """``environments`` copies of ``env`` that step together.

    Where the environment comes with a vectorised implementation (``vector_entry_point``) that is
    taken, else this process steps the copies in turn: Gymnasium's own choice.

    Raises:
        MissingDependencyError: Gymnasium is not installed.
        InvalidValueError: No such environment, or it cannot be made.
    """
    gymnasium = _gymnasium()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # advice to the environment's author, not to its user
            vector: VectorEnv[Any, Any, Any] = gymnasium.make_vec(env, num_envs=environments)
            return vector
    except Exception as error:  # its constructor is anybody's code
        raise InvalidValueError(
            "`env`",
            f"{env!r} ({' '.join(str(error).split()).rstrip('.')})",
            "the id of a registered Gymnasium environment",
            "check its spelling, or import the package that registers it: package:Name-v0",
        ) from error


def horizon(vector: VectorEnv[Any, Any, Any], max_episode_steps: int | None) -> int:
    """The number of steps after which an episode is cut."""
    own = vector.spec.max_episode_steps if vector.spec is not None else None
    return min(
        (limit for limit in (max_episode_steps, own) if limit is not None), default=DEFAULT_HORIZON
    )


def reward_threshold(vector: VectorEnv[Any, Any, Any]) -> float | None:
    """The return at which the environment's registration calls it solved, if it says so."""
    return None if vector.spec is None else vector.spec.reward_threshold


def _gymnasium() -> Any:
    try:
        import gymnasium
    except ImportError as error:
        raise missing("gymnasium") from error
    return gymnasium


def missing(package: str) -> MissingDependencyError:
    """The error for an optional package that training needs."""
    return MissingDependencyError(
        f"the package `{package}`",
        "no installation of it",
        "eligibility with its training extra",
        'pip install "eligibility[train]"',
    )
