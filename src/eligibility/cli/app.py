"""``eligibility VERB``: the verbs put together, and the one place where errors become one line.

Exit status: 0 fine, 1 a fault was found (audit), 2 bad usage or nothing could be judged (audit),
3 no known rule explains it (audit), 130 interrupted. The verbs load
torch inside their functions, so that ``--help`` is instant.
"""

from __future__ import annotations

import atexit
import gc
import os
import re
import sys
from typing import Annotated, Any, NoReturn

import typer
import typer.core

import eligibility
from eligibility.cli.audit import audit
from eligibility.cli.bench import bench
from eligibility.cli.compare import compare
from eligibility.cli.evaluate import evaluate
from eligibility.cli.explain import explain
from eligibility.cli.plot import plot
from eligibility.cli.sweep import sweep
from eligibility.cli.train import train
from eligibility.errors import EligibilityError, OutputError
from eligibility.train.config import as_written
from eligibility.train.domains import HABITS
from eligibility.train.presets import preset

# The title of a group, by the first of its options.
_TITLES = {
    "env": "Arguments",
    "env_kwargs": "The run",
    "discount": "The weight of each action",
    "entropy_coef": "The step",
    "hidden_sizes": "The policy and what it sees",
    "threads": "The process and its files",
    "seeds": "The seeds and their files",
}


class GroupedHelp(typer.core.TyperCommand):
    """Options stand in the order of the config, under the titles of their groups.

    After the id of an environment with a preset, as in ``train CartPole-v1 --help``, its options
    are the defaults that are shown.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Notice the environment before the help is asked for."""
        ctx.meta[__name__] = next((preset(word) for word in args if preset(word)), {})
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write all groups."""
        groups: dict[str, list[tuple[str, str]]] = {}
        title = ""
        chosen = ctx.meta[__name__]
        for each in self.get_params(ctx):
            title = _TITLES.get(str(each.name), title)
            name, text = each.get_help_record(ctx) or ("", "")
            if each.name in chosen:
                own, _, _ = text.partition(" Default: ")
                text = f"{own} Default, by the preset: {as_written(chosen[each.name])}."
            groups.setdefault(title, []).append((name, text))
        for title, rows in groups.items():
            with formatter.section(title):
                formatter.write_dl(rows)


app = typer.Typer(
    name="eligibility",
    help="REINFORCE you can see through: explain a gradient, audit a program, train a policy.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"eligibility {eligibility.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    pass


app.command()(explain)
app.command()(audit)
app.command(cls=GroupedHelp)(train)
app.command(cls=GroupedHelp)(sweep)
app.command()(evaluate)
app.command()(compare)
app.command()(plot)
app.command()(bench)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit the process with its status."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    gc.set_threshold(50_000)  # importing torch makes a million objects, none of them garbage
    atexit.register(gc.freeze)  # else the end searches them, for half a second
    try:
        status = app(given or ["--help"], standalone_mode=False)
    except EligibilityError as error:
        _fail(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output has seen enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except OSError as error:
        if error.filename is None:
            raise
        _fail(str(_unusable(error)))
    except MemoryError as error:
        _fail(str(_too_large(str(error))))
    except Exception as error:  # sorted below: a defect must not end with the status of a fault
        if isinstance(error, RuntimeError) and "can't allocate memory" in str(error):  # torch's
            _fail(str(_too_large(str(error))))
        # The usage errors of Typer have no common public type across its versions, but this method.
        if not hasattr(error, "format_message"):
            sys.excepthook(type(error), error, error.__traceback__)
            _fail("this is a defect of eligibility, please report it with the lines above")
        _fail(_usage(error.format_message(), given))
    sys.exit(status if isinstance(status, int) else 0)


def _unusable(error: OSError) -> OutputError:
    """The error for a path that the user named and the system refuses."""
    return OutputError(
        f"`{str(error.filename)[:200]}`",
        error.strerror or str(error),
        "a usable path",
        "check its name and its permissions",
    )


def _too_large(message: str) -> EligibilityError:
    """The error for arrays that the machine has no memory for."""
    asked = re.search(r"([\d.]+ ?[KMGTPE]?i?B|\d+ bytes)", message)
    return EligibilityError(
        "the memory",
        f"a request for {asked.group()}" if asked else "a request that is too large",
        "no more than this machine has free",
        "choose smaller sizes, or fewer environments",
    )


def _usage(message: str, arguments: list[str]) -> str:
    """Wrong usage in one line, with what to do about it."""
    unknown = re.match(r"No such option: --([\w-]+)", message)
    if unknown and arguments[:1] in (["train"], ["sweep"]):
        ours = HABITS.get(unknown[1].replace("-", "_"))
        if ours is not None:
            return f"No such option: --{unknown[1]}; here it is --{ours.replace('_', '-')}."
    sentence = message if message.endswith((".", "?", "!")) else f"{message}."
    return f"{sentence} {_remedy(arguments) if unknown else 'Try `--help`.'}"


def _remedy(arguments: list[str]) -> str:
    """What to do about an unknown option: a script's own are often written as ours."""
    script = next((word for word in arguments[1:] if word.endswith((".py", ".ipynb"))), None)
    if script is None or "--" in arguments:
        return "Try `--help`."
    return f"If it is an option of {script}, write it after `--`: {script} -- …"


def _fail(message: str) -> NoReturn:
    typer.echo("error: " + " ".join(message.split()), err=True)
    sys.exit(2)
