"""Vector environments by id, and what of their spaces is supported."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import os
import sys
import warnings
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eligibility.errors import InvalidValueError, MissingDependencyError
from eligibility.train.domains import shown

if TYPE_CHECKING:
    from gymnasium.vector import VectorEnv

DEFAULT_HORIZON = 1000
# What makes an environment, where its id says so; other prefixes are modules that register it.
_MAKERS = ("envpool", "gymnasium")
# How the ids begin that a module registers when it is imported.
_MODULES = {"ALE/": "ale_py", "MiniGrid-": "minigrid", "BabyAI-": "minigrid"}
# Which extra of ours installs the packages that environments need.
_EXTRAS = {
    "envpool": "envpool",
    "ale_py": "atari",
    "Box2D": "box2d",
    "mujoco": "mujoco",
    "minigrid": "minigrid",
}


def make_vector(
    env: str, environments: int, keywords: Mapping[str, Any] | None = None
) -> VectorEnv[Any, Any, Any]:
    """``environments`` copies of ``env`` that step together, made with the keywords.

    Where the environment comes with a vectorised implementation (``vector_entry_point``) that is
    taken, as by Gymnasium; else this process steps the copies in turn, each for one episode.
    ``envpool:Name-v1`` is EnvPool's, ``gymnasium:Name-v1`` Gymnasium's as ``Name-v1`` is,
    ``module:Name-v0`` one that a module registers when it is imported, from the working folder too,
    and ``file.py:Name`` a class or function in a file.
    """
    gymnasium = required("gymnasium", "gymnasium")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # advice to the environment's author, not to its user
            return _make_vector(gymnasium, env, environments, keywords or {})
    except Exception as error:  # its constructor is anybody's code
        reason = " ".join(str(error).split()).rstrip(".")
        if keywords and isinstance(error, TypeError):
            raise InvalidValueError(
                "`env_kwargs`",
                f"{shown(keywords)} ({reason})",
                "keywords and values that the environment accepts",
                "look them up in its documentation",
            ) from error
        for name, extra in _EXTRAS.items():
            if importlib.util.find_spec(name) is None and _is_about(error, env, name):
                raise missing(name, extra) from error
        raise InvalidValueError(
            "`env`",
            f"{env!r} ({reason})",
            "the id of a registered Gymnasium environment",
            _remedy(gymnasium, env),
        ) from error


def _remedy(gymnasium: Any, env: str) -> str:
    """The registered id that was probably meant; else what an id may be."""
    known = {name.lower(): name for name in gymnasium.registry}
    close = difflib.get_close_matches(env.lower(), known, n=1, cutoff=0.75)
    if close:
        return f"did you mean {known[close[0]]}?"
    return (
        "check its spelling, or name the module that registers it, module:Name-v0, or the file "
        "that has its class, file.py:Name"
    )


def module_of(env: str) -> str:
    """The module that an id names to be imported; empty if it names none, or one known here."""
    module = env.rpartition(":")[0]
    return "" if module in _MAKERS else module


def make_visible(env: str, keywords: Mapping[str, Any] | None) -> VectorEnv[Any, Any, Any]:
    """One environment that draws itself, as a vector; whatever it raises comes through.

    ``env`` is an id as in `make_vector`, but EnvPool's are drawn by Gymnasium's of the same name.
    A class that takes no ``render_mode`` may have a fixed one.
    """
    found = _found(env)
    try:
        return _in_turn(found, 1, {**(keywords or {}), "render_mode": "rgb_array"})
    except TypeError as error:
        if "render_mode" not in str(error):
            raise
        vector = _in_turn(found, 1, keywords or {})
        if vector.render_mode != "rgb_array":
            vector.close()
            raise
        return vector


def _make_vector(
    gymnasium: Any, env: str, environments: int, keywords: Mapping[str, Any]
) -> VectorEnv[Any, Any, Any]:
    """As `make_vector`; whatever the environment raises comes through."""
    if env.startswith("envpool:"):
        from eligibility.train.vectors import EnvPoolVector

        return EnvPoolVector(env.removeprefix("envpool:"), environments, keywords)
    found = _found(env)
    if getattr(found, "vector_entry_point", None) is None:
        return _in_turn(found, environments, keywords)
    from eligibility.train.vectors import with_seeds_that_fit

    return with_seeds_that_fit(gymnasium.make_vec(found, num_envs=environments, **keywords))


def _found(env: str) -> Any:
    """What an id names: Gymnasium's registration, or a class or function in a file."""
    import gymnasium

    from eligibility.train import tasks

    tasks.register()
    module, colon, name = env.rpartition(":")
    if colon and not module:
        raise ValueError("no module before the colon")
    if module.endswith(".py"):
        return _in_file(module, name)
    if module in ("", *_MAKERS):
        module = next((m for start, m in _MODULES.items() if name.startswith(start)), "")
    if module:
        _import(module)
    return gymnasium.spec(name)


def _in_turn(
    found: Any, environments: int, keywords: Mapping[str, Any]
) -> VectorEnv[Any, Any, Any]:
    """Copies that this process steps in turn, each for one episode."""
    import gymnasium
    from gymnasium.envs.registration import EnvSpec

    from eligibility.train.vectors import OneEpisodeVector

    registered = isinstance(found, EnvSpec)
    make = partial(gymnasium.make, found) if registered else found
    vector = OneEpisodeVector([partial(make, **keywords)] * environments)
    if registered:
        vector.spec = vector.envs[0].spec
    return vector


def _import(module: str) -> None:
    """Import a module; one in the working folder as well, but after those that are installed."""
    before = list(sys.path)
    sys.path.append(os.getcwd())
    try:
        importlib.import_module(module)
    finally:
        sys.path[:] = before


def _in_file(path: str, name: str) -> Any:
    """What a Python file calls ``name``."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    if spec is None or spec.loader is None:
        raise ValueError("not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


def horizon(vector: VectorEnv[Any, Any, Any], max_episode_steps: int | None) -> int:
    """The number of steps after which an episode is cut."""
    own = vector.spec.max_episode_steps if vector.spec is not None else None
    limits = [limit for limit in (max_episode_steps, own) if limit is not None]
    return min(limits, default=DEFAULT_HORIZON)


def reward_threshold(vector: VectorEnv[Any, Any, Any]) -> float | None:
    """The return at which the environment's registration calls it solved, if it says so."""
    return None if vector.spec is None else vector.spec.reward_threshold


def _is_about(error: BaseException, env: str, package: str) -> bool:
    """Whether an environment could not be made for want of this package."""
    name = env.removeprefix("gymnasium:")
    wanted = next((m for start, m in _MODULES.items() if name.startswith(start)), None)
    return wanted == package or package.lower() in str(error).lower()


def required(module: str, package: str, extra: str = "train") -> Any:
    """A module of an optional package; raise unless that is installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise missing(package, extra) from error


def missing(
    package: str, extra: str = "train", install: str | None = None
) -> MissingDependencyError:
    """The error for an optional package; ``install``: the extras that it takes, if not one."""
    return MissingDependencyError(
        f"the package `{package}`",
        "no such package",
        f"eligibility with its {extra} extra",
        f'pip install "eligibility[{install or extra}]"',
    )


def check_trusted(named: object, allow_modules: Collection[str], source: str) -> None:
    """Raise if what was read from ``source`` would import a module that nobody has allowed.

    Importing runs its code: what the user asks for as an argument, a file may ask for a stranger.
    ``named`` is the id of an environment, or the keywords to make it with, which may name another.
    With an allowed module those within it are allowed.
    """
    for text in _texts(named):
        module = module_of(text)
        if module and not any(module == a or module.startswith(f"{a}.") for a in allow_modules):
            raise InvalidValueError(
                f"the environment in {source}",
                f"`{text}`, which imports the module `{module}` and therefore runs its code",
                "an environment that Gymnasium registers itself, or a module that you trust and "
                "name",
                f"if you trust it, pass --allow-module {module} "
                f"(in Python allow_modules=[{module!r}])",
            )


def modules_named(named: object) -> list[str]:
    """The modules that `check_trusted` would ask for."""
    return [module_of(text) for text in _texts(named) if module_of(text)]


def _texts(found: object) -> Iterator[str]:
    """The texts in it, at any depth; what else there is names nothing."""
    if isinstance(found, str):
        yield found
    elif isinstance(found, (dict, list)):
        for part in found.values() if isinstance(found, dict) else found:
            yield from _texts(part)
