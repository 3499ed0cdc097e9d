"""Which environments EnvPool steps in less processor time than Gymnasium does."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

# How many times as fast a rollout is, policy and all, by `python -m benchmarks.pools`; only those
# that are twice as fast, have the spaces and limits of Gymnasium's, and are learned as well.
FACTORS = {
    "Acrobot-v1": 8.0,
    "Pendulum-v1": 2.0,
    "MiniGrid-Empty-5x5-v0": 7.6,
    "MiniGrid-Empty-8x8-v0": 8.1,
    "MiniGrid-DoorKey-5x5-v0": 9.6,
}
# The first version that all of these were tried with.
_OLDEST = (1, 2)


def quicker(env: str) -> str | None:
    """The id of the same environment in EnvPool, if that is installed and quicker; else None."""
    try:
        installed = tuple(map(int, version("envpool").split(".")[:2]))
    except (PackageNotFoundError, ValueError):  # none, or a version of somebody's own
        return None
    return f"envpool:{env}" if env in FACTORS and installed >= _OLDEST else None
