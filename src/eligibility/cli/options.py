"""The fields of the one config dataclass as options of the command line."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING, fields
from typing import Annotated, Any, get_type_hints

import typer

from eligibility.train.config import Config, as_written

# What evaluate and compare ask for in the same words.
Episodes = Annotated[int, typer.Option(min=1, help="Fresh episodes to play with each.")]
EpisodeSeed = Annotated[
    int | None, typer.Option(min=0, help="Seed of the episodes. Default: each run's own.")
]
Stochastic = Annotated[
    bool,
    typer.Option(
        "--stochastic", help="Sample the actions instead of taking the most probable ones."
    ),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print the result as JSON on standard output.")
]

AllowModule = Annotated[
    list[str] | None,
    typer.Option(
        help="A module that a run, checkpoint or config file may import, as in MODULE:Name-v0. "
        "Importing it runs its code. Repeat the option for more modules.",
        show_default=False,
    ),
]


def config_options(without: Iterable[str] = ()) -> Iterator[inspect.Parameter]:
    """The fields of the config, as Typer reads them.

    The value of an option that is not given is None, so that presets can be told from wishes.
    """
    hints = get_type_hints(Config)
    for field in fields(Config):
        if field.name in without:
            continue
        hint = hints[field.name]
        kind = str if "tuple" in str(hint) or "Mapping" in str(hint) else hint
        text = field.metadata["help"]
        if field.default is MISSING:
            argument = typer.Argument(help=text, show_default=False)
            yield parameter(field.name, Annotated[kind | None, argument], None)
            continue
        if field.default is not None:
            text += f" Default: {as_written(field.default)}."
        yield option(field.name, kind, text)


def option(name: str, kind: Any, help: str) -> inspect.Parameter:
    """An option whose value is None where it is not given."""
    explained = typer.Option(help=help, show_default=False)
    return parameter(name, Annotated[kind | None, explained], None)


def flag(name: str, written: str, help: str) -> inspect.Parameter:
    """A switch that is off where it is not given."""
    return parameter(name, Annotated[bool, typer.Option(written, help=help)], False)


def given(options: dict[str, Any]) -> dict[str, Any]:
    """Those that the user wrote."""
    return {name: value for name, value in options.items() if value is not None}


def take_signature(command: Callable[..., Any], parameters: list[inspect.Parameter]) -> None:
    """Give a command these options: Typer reads its signature and its annotations."""
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # PEP 362
    command.__annotations__ = {one.name: one.annotation for one in parameters}


def parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    """A parameter as Typer reads it."""
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )
