"""``eligibility train ENV``: its options are the fields of the one config dataclass."""

from __future__ import annotations

import inspect
import json
import re
import signal
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import MISSING, fields
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from eligibility.errors import EligibilityError, InvalidValueError
from eligibility.train.config import Config

if TYPE_CHECKING:
    from rich.console import Console

    from eligibility.train.progress import Progress


def train(
    env: str | None, *, out: Path | None, resume: Path | None, json_: bool, **options: Any
) -> int:
    """Train a policy by REINFORCE on a Gymnasium environment.

    Options that are not given come from the environment's preset, if there is one, else they have
    the defaults below. The run folder receives the config, the learning curve (CSV and PNG),
    TensorBoard events and the checkpoint. Ctrl-C keeps what was trained so far.
    """
    options = {name: value for name, value in options.items() if value is not None}
    _check(env, out, resume, options)  # a mistake is answered before torch is loaded
    from rich.console import Console

    from eligibility.train.display import ProgressDisplay
    from eligibility.train.learner import Reinforce
    from eligibility.train.run_folder import RunFolder

    if resume is not None:
        model = Reinforce.load(resume, **options)
        folder = RunFolder(resume, model, resume=True)
    else:
        model = Reinforce(str(env), **options)
        folder = RunFolder(out or _default_folder(model.config), model)
    console = Console(stderr=True)
    display = ProgressDisplay(console, model.config.steps, model.stop_at)
    received: list[int] = []

    def callback(progress: Progress) -> bool:
        folder(progress)
        display(progress)
        return not received

    try:
        with display, _stopping_on_signals(received):
            model.learn(callback=callback)
    except EligibilityError:
        folder.finish()
        raise
    result = folder.finish()
    if json_:
        sys.stdout.write(json.dumps(result) + "\n")
    _report(console if json_ else Console(), model.config.env, result)
    return 128 + received[0] if received else 0


def _check(env: str | None, out: Path | None, resume: Path | None, options: dict[str, Any]) -> None:
    """Raise unless the options say either what to train or what to go on with."""
    if (env is None) == (resume is None):
        raise InvalidValueError(
            "the command",
            "neither ENV nor --resume" if env is None else "both ENV and --resume",
            "the id of an environment, or the folder of a run to go on with",
            "for instance eligibility train CartPole-v1",
        )
    if env is not None:
        Config.from_options(env, options)
    elif out is not None:
        raise InvalidValueError(
            "`--out`", str(out), "no --out with --resume", "the run stays in its folder"
        )


@contextmanager
def _stopping_on_signals(received: list[int]) -> Iterator[None]:
    """The first Ctrl-C or SIGTERM ends the training after the rollout; a second one at once."""

    def remember(number: int, frame: types.FrameType | None) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)
        sys.stderr.write("stopping after this rollout; once more to stop at once\n")

    before = {number: signal.signal(number, remember) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _report(console: Console, env: str, result: dict[str, Any]) -> None:
    outcome = "solved" if result["solved"] else "not solved"
    console.print(
        f"{env} {outcome}: mean return {result['mean_return']:.1f} over the last 100 episodes, "
        f"{result['updates']:,} updates, {result['steps']:,} steps, "
        f"{result['training_seconds']:.2f} s of training",
        highlight=False,
        soft_wrap=True,
    )
    console.print(f"everything is in {result['run']}", highlight=False, soft_wrap=True)


def _default_folder(config: Config) -> Path:
    name = re.sub(r"[^\w.-]+", "-", config.env)
    return Path("runs") / f"{name}-{config.seed}-{datetime.now():%Y%m%d-%H%M%S}"


def _options() -> Iterator[inspect.Parameter]:
    """The fields of the config and what only the command line has, as Typer reads them.

    The value of an option that is not given is None, so that presets can be told from wishes.
    """
    hints = get_type_hints(Config)
    for option in fields(Config):
        kind = str if "tuple" in str(hints[option.name]) else hints[option.name]
        text = option.metadata["help"]
        if option.default is MISSING:
            argument = typer.Argument(help=text, show_default=False)
            yield _parameter(option.name, Annotated[kind | None, argument], None)
            continue
        if option.default is not None:
            text += f" Default: {_as_written(option.default)}."
        explained = typer.Option(help=text, show_default=False)
        yield _parameter(option.name, Annotated[kind | None, explained], None)
    folder = "Run folder. Default: runs/ENV-SEED-TIME."
    yield _parameter("out", Annotated[Path | None, typer.Option(help=folder)], None)
    again = "Go on with the run in this folder; only --steps, --stop-at, --threads may change."
    yield _parameter("resume", Annotated[Path | None, typer.Option(help=again)], None)
    alone = "Print the result as JSON on standard output, everything else on standard error."
    yield _parameter("json_", Annotated[bool, typer.Option("--json", help=alone)], False)


def _as_written(default: Any) -> str:
    """A default as one would write it on the command line."""
    return ",".join(map(str, default)) if isinstance(default, tuple) else str(default)


def _parameter(
    name: str, annotation: Any, default: Any = inspect.Parameter.empty
) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


# One config dataclass is the command line: Typer reads the signature and the annotations.
train.__signature__ = inspect.Signature(list(_options()))  # type: ignore[attr-defined]  # PEP 362
train.__annotations__ = {option.name: option.annotation for option in _options()}
