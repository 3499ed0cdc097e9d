"""What is told of a training while it runs, with the habits of Stable-Baselines3."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

from eligibility.errors import InvalidTypeError
from eligibility.train.progress import Progress

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
