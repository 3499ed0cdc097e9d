"""What is told of a training while it runs, with the habits of Stable-Baselines3."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from eligibility.errors import InvalidTypeError
from eligibility.scalars import check_count, check_path
from eligibility.train.environments import missing
from eligibility.train.progress import Progress, metrics

if TYPE_CHECKING:
    from eligibility.train.learner import Reinforce


class Callback:
    """Override the methods you want; the others do nothing.

    Example:
        >>> from eligibility import Callback, Reinforce
        >>> class Best(Callback):
        ...     best = float("-inf")
        ...     def on_rollout_end(self, progress):
        ...         self.best = max(self.best, progress.mean_return)
        >>> model, best = Reinforce("CartPole-v1"), Best()
        >>> stop = lambda progress: progress.updates < 2
        >>> _ = model.learn(total_steps=5_000, callback=[best, stop])
        >>> model.progress.updates, best.best == model.progress.mean_return
        (2, True)
    """

    def on_training_start(self, model: Reinforce) -> None:
        """Before the first rollout of a call of ``learn``; the model is the one that learns."""

    def on_rollout_end(self, progress: Progress) -> bool | None:
        """After each rollout and its update; False ends the training."""

    def on_training_end(self) -> None:
        """After the last rollout, also when an error ends the training."""


Listener: TypeAlias = Callback | Callable[[Progress], bool | None]


class Callbacks:
    """Several as one: a plain function hears of the ends of rollouts."""

    def __init__(self, given: Listener | Iterable[Listener] | None) -> None:
        if given is None:
            given = ()
        elif isinstance(given, Callback) or not isinstance(given, Iterable):
            given = (given,)
        self._listeners = list(given)
        for listener in self._listeners:
            if not (isinstance(listener, Callback) or callable(listener)):
                raise InvalidTypeError(
                    "`callback`",
                    type(listener).__name__,
                    "a function of the progress, a Callback, or a list of these",
                    "see eligibility.Callback",
                )

    @contextmanager
    def attending(self, model: Reinforce) -> Iterator[None]:
        """Tell of the start, and, whatever happens, of the end."""
        objects = [one for one in self._listeners if isinstance(one, Callback)]
        started: list[Callback] = []
        try:
            for one in objects:
                one.on_training_start(model)
                started.append(one)
            yield
        finally:
            for one in reversed(started):
                one.on_training_end()

    def rollout_ended(self, progress: Progress) -> bool:
        """Tell all of them; False if one wants to stop."""
        heard = [
            one.on_rollout_end(progress) if isinstance(one, Callback) else one(progress)
            for one in self._listeners
        ]
        return not any(answer is False for answer in heard)


BEST = "best.safetensors"  # in a run folder


class KeepBest(Callback):
    """Plays the greedy policy regularly, and saves the model when it does better than ever before.

    Each evaluation plays the same episodes, so differences come from the policies. These are not
    training episodes, so the run is the same with or without it. Its time counts as training time.

    Args:
        path: The checkpoint to write; it is replaced whole or not at all.
        every: Updates between two looks.
        episodes: In each look.

    Attributes:
        best_return: The mean return of the policy that is kept; −∞ before the first look.
        best_steps: After how many steps of training it was that good.

    Example:
        >>> import tempfile, eligibility as el
        >>> best = el.KeepBest(tempfile.mkdtemp() + "/best.safetensors", every=1)
        >>> _ = el.Reinforce("CartPole-v1").learn(total_steps=20_000, callback=best)
        >>> kept = el.Reinforce.load(best.path)
        >>> kept.progress.steps == best.best_steps
        True
        >>> kept.evaluate(20).mean_return == best.best_return
        True
    """

    def __init__(self, path: str | Path, *, every: int = 10, episodes: int = 20) -> None:
        check_path(path)
        check_count(every, "every")
        check_count(episodes, "episodes")
        self.path, self.every, self.episodes = Path(path), every, episodes
        self.best_return, self.best_steps = -math.inf, 0
        self._model: Reinforce | None = None

    def on_training_start(self, model: Reinforce) -> None:
        """Whom to look at; of several processes, the one that keeps the record looks."""
        self._model = model if model.leads else None

    def on_rollout_end(self, progress: Progress) -> None:
        """Look, if it is time to; at a policy that has solved its task in any case."""
        if self._model is None or (progress.updates % self.every and not progress.solved):
            return
        played = self._model.evaluate(self.episodes).mean_return
        if played > self.best_return:
            self.best_return, self.best_steps = played, progress.steps
            self._model.save(self.path)


class WandbCallback(Callback):
    """Log each rollout as a step of a Weights & Biases run."""

    def __init__(self, project: str, **options: Any) -> None:
        try:
            import wandb
        except ImportError as error:
            raise missing("wandb", "wandb", "train,wandb") from error
        self._init, self._options = wandb.init, {"project": project, **options}
        self._run: Any = None

    def on_training_start(self, model: Reinforce) -> None:
        self._run = self._init(config=asdict(model.config), **self._options)

    def on_rollout_end(self, progress: Progress) -> None:
        self._run.log({**metrics(progress), "episodes": progress.episodes}, step=progress.steps)

    def on_training_end(self) -> None:
        """Finish the run: what is still on its way is sent."""
        self._run.finish()
