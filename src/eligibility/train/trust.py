"""Which modules a file may name: none that the caller did not name too.

``package:Name-v0`` imports ``package``, which runs its code. On the command line, or as an
argument, that is what the user asks for; in a checkpoint, a run folder or a config file it may be
a stranger's wish.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from eligibility.errors import InvalidValueError
from eligibility.train.environments import module_of


def check_trusted(named: object, allow_modules: Collection[str], source: str) -> None:
    """Raise if what was read from ``source`` would import a module that nobody has allowed.

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
