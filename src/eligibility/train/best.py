"""The best policy of a training, kept next to the last one."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from eligibility.scalars import check_count, check_path
from eligibility.train.callbacks import Callback

if TYPE_CHECKING:
    from eligibility.train.learner import Reinforce
    from eligibility.train.progress import Progress


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
