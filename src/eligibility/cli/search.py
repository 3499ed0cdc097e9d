"""``eligibility sweep ENV --search N``: Optuna proposes options, a sweep tries each of them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

import typer

from eligibility.cli.seeds import Seeds
from eligibility.errors import InvalidValueError
from eligibility.files import write_atomically
from eligibility.train.config import Config
from eligibility.train.environments import required
from eligibility.train.record import FolderLock, read_curve

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.study import Study

_RANGE = re.compile(r"(.+)\.\.(.+)")
_POINTS = 400


class Search:
    """Trials, ``trial-N`` each in one folder, and Optuna's journal of them.

    A trial's value is the mean return over the whole training and all its seeds, so that of two
    choices that solve the task the faster one is better. What a trial proposes depends only on the
    trials before it, so that a stopped search continues as if it had run through. ``over`` holds
    ``NAME=LOW..HIGH``, or ``NAME=VALUE`` once for each choice.
    """

    def __init__(
        self,
        folder: Path,
        env: str,
        options: dict[str, Any],
        over: Sequence[str],
        seeds: list[int],
        allow_modules: Sequence[str] = (),
    ) -> None:
        self.folder, self._env, self._options = folder, env, options
        self._seeds, self._allowed = seeds, allow_modules
        self._space = read_space(over)
        self._common = {
            "config": asdict(Config.from_options(env, options)),
            "over": {name: list(values) for name, values in self._space.items()},
            "seeds": seeds,
        }
        Config.check_known(self._space)
        for option in fields(Config):  # each by itself: what goes with what, the trials show
            for value in self._space.get(option.name, ()):
                option.metadata["domain"](option.name, value)
        self.stopped = False

    def run(self, trials: int, jobs: int | None) -> dict[str, Any]:
        """Go on until there are that many; returns what search.json says."""
        lock = FolderLock(self.folder)
        try:
            study = self._study()
            for begun in [one for one in study.trials if not one.state.is_finished()]:
                self._try(study, begun, jobs)
            while len(study.trials) < trials and not self.stopped:
                self._try(study, self._propose(study), jobs)
            return self._summarize(study)
        finally:
            lock.release()

    def _study(self) -> Study:
        optuna = required("optuna", "optuna", "search")
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        storage = JournalStorage(JournalFileBackend(str(self.folder / "optuna.log")))
        study: Study = optuna.create_study(
            storage=storage, study_name="search", direction="maximize", load_if_exists=True
        )
        common = json.loads(json.dumps(self._common))
        if study.user_attrs.get("common", common) != common:
            raise InvalidValueError(
                f"the folder `{self.folder}`",
                "a search with different options",
                "no search, or one started by the same command (--search may be larger)",
                "choose another folder with --out",
            )
        study.set_user_attr("common", common)
        return study

    def _propose(self, study: Study) -> Any:
        from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
        from optuna.samplers import TPESampler

        made: dict[str, BaseDistribution] = {}
        for name, values in self._space.items():
            if isinstance(values, list):
                made[name] = CategoricalDistribution(values)
            else:
                kind = IntDistribution if isinstance(values[0], int) else FloatDistribution
                made[name] = kind(*values, log=values[0] > 0)
        study.sampler = TPESampler(seed=len(study.trials))
        return study.ask(made)

    def _try(self, study: Study, trial: Any, jobs: int | None) -> None:
        """Train with what a trial proposes, and tell how it went; nothing if it was stopped."""
        from optuna.trial import TrialState

        number, chosen = trial.number, trial.params
        text = ", ".join(f"{name} {value}" for name, value in chosen.items())
        try:
            config = Config.from_options(self._env, {**self._options, **chosen})
        except InvalidValueError as error:
            typer.echo(f"trial {number} ({text}): {error}", err=True)
            study.tell(number, state=TrialState.FAIL)
            return
        typer.echo(f"trial {number}: {text}", err=True)
        runs = Seeds(self.folder / f"trial-{number}", config, self._seeds, self._allowed)
        runs.run(jobs)
        self.stopped = runs.stopped
        if self.stopped:
            return
        if runs.failed:
            study.tell(number, state=TrialState.FAIL)
            return
        value = mean_return(runs.folder, self._seeds, config.steps)
        study.tell(number, value)
        typer.echo(f"trial {number}: {value:.2f} on average over the training", err=True)

    def _summarize(self, study: Study) -> dict[str, Any]:
        """Write search.json and, where a trial is complete, the config best.json."""
        trials: list[dict[str, Any]] = [
            {"number": one.number, "options": one.params, "value": one.value}
            for one in study.trials
            if one.state.is_finished()
        ]
        complete = [one for one in trials if one["value"] is not None]
        best = max(complete, key=lambda one: one["value"]) if complete else None
        summary = {"best": best, "trials": trials}
        write_atomically(self.folder / "search.json", json.dumps(summary, indent=2) + "\n")
        if best is not None:
            config = {"env": self._env, **self._options, **best["options"]}
            write_atomically(self.folder / "best.json", json.dumps(config, indent=2) + "\n")
        return summary


def read_space(over: Sequence[str]) -> dict[str, list[Any] | tuple[Any, Any]]:
    """What ``--over`` says: for each option its two bounds, or a list of choices."""
    space: dict[str, list[Any] | tuple[Any, Any]] = {}
    for text in over:
        name, _, written = text.partition("=")
        name, bounds = name.strip().replace("-", "_"), _RANGE.fullmatch(written)
        low, high = (_value(name, part) for part in bounds.groups()) if bounds else (0, 0)
        known = space.setdefault(name, (low, high) if bounds else [])
        if (
            not bounds
            and written
            and isinstance(known, list)
            and _value(name, written) not in known
        ):
            known.append(_value(name, written))
        elif not (known == (low, high) and type(low) is type(high) in (int, float) and low < high):
            raise InvalidValueError(
                "`--over`",
                text,
                "NAME=LOW..HIGH, or NAME=VALUE once for each choice",
                "such as --over learning-rate=0.001..0.1 --over hidden-sizes=32",
            )
    if not space:
        raise InvalidValueError(
            "`--search`",
            "nothing to search over",
            "at least one --over",
            "such as --over learning-rate=0.001..0.1",
        )
    return space


def _value(name: str, text: str) -> Any:
    """A number or a truth value, as JSON has it; else a text, and so are lists such as 64,64."""
    try:
        if "tuple" in str(get_type_hints(Config).get(name)):
            return text
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, (bool, int, float)) else text


def mean_return(folder: Path, seeds: Sequence[int], steps: int) -> float:
    """Over the steps of the training and the seeds; a run that was solved stays solved."""
    import numpy as np

    from eligibility.train.curve import returns_at

    at = np.linspace(0, steps, _POINTS)
    runs = [read_curve(folder / f"seed-{seed}") for seed in seeds]
    return float(np.mean([returns_at(run, at) for run in runs]))
