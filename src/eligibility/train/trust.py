"""Which modules a file may name: none that the caller did not name too.

``package:Name-v0`` imports ``package``, which runs its code. On the command line, or as an
argument, that is what the user asks for; in a checkpoint, a run folder or a config file it may be
a stranger's wish.
"""

from __future__ import annotations

from collections.abc import Collection

from eligibility.errors import InvalidValueError
from eligibility.train.environments import module_of


def check_trusted(env: object, allow_modules: Collection[str], source: str) -> None:
    """Raise if ``env``, read from ``source``, would import a module that nobody has allowed.

    Args:
        env: The id of an environment.
        allow_modules: Modules that may be imported, and with each the modules within it.
        source: What the id was read from, for the error.

    Raises:
        InvalidValueError: It would.
    """
    module = module_of(env) if isinstance(env, str) else ""  # what else it is, the config refuses
    allowed = any(module == name or module.startswith(f"{name}.") for name in allow_modules)
    if module and not allowed:
        raise InvalidValueError(
            f"the environment in {source}",
            f"`{env}`, which imports the module `{module}` and so runs its code",
            "one that Gymnasium knows by itself, or a module that you trust and name",
            f"if you trust it, pass --allow-module {module} (in Python allow_modules=[{module!r}])",
        )
