"""``eligibility train ENV``: its options are the fields of the one config dataclass."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from eligibility.cli.options import (
    AllowModule,
    config_options,
    flag,
    given,
    option,
    parameter,
    take_signature,
)
from eligibility.errors import EligibilityError, InvalidValueError
from eligibility.files import check_writable
from eligibility.scalars import check_count
from eligibility.train.config import Config
from eligibility.train.config_file import read_trusted
from eligibility.train.presets import FACTORS, quicker
from eligibility.train.record import CONFIG

if TYPE_CHECKING:
    from eligibility.train.learner import Reinforce
    from eligibility.train.progress import Progress


def train(
    env: str | None,
    *,
    config: Path | None,
    out: Path | None,
    resume: Path | None,
    wandb: str | None,
    video: Path | None,
    allow_module: list[str] | None,
    max_seconds: float | None,
    keep_best: int | None,
    json_: bool,
    **options: Any,
) -> int:
    """Train a policy by REINFORCE on a Gymnasium environment.

    Options not given here come from the config file, then from the environment's preset, then from
    the defaults below. `train ENV --help` shows the defaults for ENV. The run folder receives the
    config, the learning curve (CSV and PNG), TensorBoard events and the checkpoint. Ctrl-C keeps
    the policy trained so far.

    To use several processes: torchrun --nproc-per-node 2 -m eligibility train ENV --out FOLDER.
    """
    options, allowed = given(options), allow_module or []
    seconds = math.inf if max_seconds is None else max_seconds
    if not seconds > 0:
        raise InvalidValueError(
            "`--max-seconds`", f"{seconds:g}", "a number > 0", "omit it to set no limit"
        )
    if keep_best is not None:
        check_count(keep_best, "--keep-best")
    if config is not None:
        options = {**read_trusted(config, env, allowed), **options}
    env = named = options.pop("env", env)
    if resume is None and _is_restart(out):
        env, config, out, resume, options = None, None, None, out, {}
    chosen = None
    if env is not None and config is None and video is None and "env_kwargs" not in options:
        chosen = quicker(env)
        env = chosen or env
    _check(env, out, resume, config, options)  # a mistake is answered before torch is loaded
    if video is not None:
        check_writable(video)
    from rich.console import Console

    from eligibility.train.callbacks import BEST, KeepBest
    from eligibility.train.display import ProgressDisplay
    from eligibility.train.learner import Reinforce
    from eligibility.train.run_folder import RunFolder, load_run
    from eligibility.train.video import check_video, record_video

    if resume is not None:
        model = load_run(resume, options, env=named, allow_modules=allowed)
    else:
        model = Reinforce(str(env), **options)
    if video is not None:
        check_video(video, model.config.env, model.config.env_kwargs)
    received: list[int] = []
    if not model.leads:  # another process keeps the record
        with _stopping_on_signals(received):
            model.learn(callback=lambda progress: not received, max_seconds=seconds)
        return 128 + received[0] if received else 0
    listeners: list[Any] = []
    if wandb is not None:
        from eligibility.train.callbacks import WandbCallback

        listeners.append(WandbCallback(wandb, name=(resume or out or Path(model.config.env)).name))
    if resume is not None:
        folder = RunFolder(resume, model, resume=True)
    else:
        folder = RunFolder(out or _default_folder(model.config), model)
    if keep_best is not None:
        listeners.append(KeepBest(folder.path / BEST, every=keep_best))
    console = Console(stderr=True)
    if chosen is not None:
        typer.echo(
            f"note: EnvPool runs {named}, {FACTORS[str(named)]:.0f} times as fast as Gymnasium; "
            f"to use Gymnasium: eligibility train gymnasium:{named}",
            err=True,
        )
    for note in folder.notes:
        typer.echo(f"warning: {note}", err=True)
    display = ProgressDisplay(console, model.config.steps, model.stop_at)

    def callback(progress: Progress) -> bool:
        folder(progress)
        display(progress)
        return not received

    try:
        with display, _stopping_on_signals(received):
            model.learn(callback=[callback, *listeners], max_seconds=seconds)
    except EligibilityError:
        folder.finish()
        raise
    result = folder.finish()
    if video is not None:
        record_video(model, video, model.config.seed)
    if json_:
        sys.stdout.write(json.dumps(result) + "\n")
    _report(model, result, to_stderr=json_)
    return 128 + received[0] if received else 0


def _is_restart(out: Path | None) -> bool:
    """Whether torchrun has started this command again, after the run had begun."""
    if out is None and int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0")):
        raise InvalidValueError(
            "`--out`",
            "none, with --max-restarts",
            "a folder where restarted processes can find the run",
            "add --out FOLDER",
        )
    restarted = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0
    # Its config is the first thing that a run leaves, and enough to go on from.
    return restarted and out is not None and (out / CONFIG).exists()


def _check(
    env: str | None,
    out: Path | None,
    resume: Path | None,
    config: Path | None,
    options: dict[str, Any],
) -> None:
    """Raise unless the options say either what to train or what to go on with."""
    if (env is None) == (resume is None):
        raise InvalidValueError(
            "the command",
            "neither ENV nor --resume" if env is None else "both ENV and --resume",
            "the id of an environment, or the folder of a run to continue",
            "for instance eligibility train CartPole-v1",
        )
    if env is not None:
        Config.from_options(env, options)
    for name, value in (("--out", out), ("--config", config)):
        if resume is not None and value is not None:
            raise InvalidValueError(
                f"`{name}`",
                str(value),
                f"no {name} with --resume",
                "a resumed run keeps its folder and its options",
            )


@contextmanager
def _stopping_on_signals(received: list[int]) -> Iterator[None]:
    """The first Ctrl-C or SIGTERM ends the training after the rollout; a second one at once."""

    def remember(number: int, frame: types.FrameType | None) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)
        sys.stderr.write("stopping after this rollout; press Ctrl-C again to stop at once\n")

    before = {number: signal.signal(number, remember) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _report(model: Reinforce, result: dict[str, Any], *, to_stderr: bool) -> None:
    outcome, updates = "solved" if result["solved"] else "not solved", result["updates"]
    typer.echo(
        f"{model.config.env} {outcome}: mean return {result['mean_return']:.1f} over the last "
        f"{len(model.recent)} episodes, "
        f"{updates:,} update{'' if updates == 1 else 's'}, {result['steps']:,} steps, "
        f"{result['training_seconds']:.2f} s of training",
        err=to_stderr,
    )
    typer.echo(f"everything is in {result['run']}", err=to_stderr)


def _default_folder(config: Config) -> Path:
    name = re.sub(r"[^\w.-]+", "-", config.env)
    return Path("runs") / f"{name}-{config.seed}-{datetime.now():%Y%m%d-%H%M%S}"


# One config dataclass is the command line: Typer reads the signature and the annotations.
OWN = (
    option(
        "config", Path, "Options from a YAML, TOML or JSON file; those given here take precedence."
    ),
    option("out", Path, "Run folder. Default: runs/ENV-SEED-TIME."),
    option(
        "resume",
        Path,
        "Continue the run in this folder; only --steps, --stop-at, --threads, --learning-rate, "
        "--natural-gradient and --env-kwargs may change.",
    ),
    option("max_seconds", float, "Stop after this many seconds of training. Default: no limit."),
    option(
        "keep_best",
        int,
        "Evaluate the greedy policy every N updates, and keep the best one in the "
        "run folder as best.safetensors.",
    ),
    parameter("allow_module", AllowModule, None),
    option("video", Path, "Film an episode of the trained policy afterwards: .gif, or .mp4."),
    option("wandb", str, "Also log to this project of Weights & Biases."),
    flag(
        "json_", "--json", "Print the result as JSON on standard output, everything else on stderr."
    ),
)
take_signature(train, [*config_options(), *OWN])
