"""A callback that logs to Weights & Biases; the package is needed by whoever uses it only."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from eligibility.errors import MissingDependencyError
from eligibility.train.callbacks import Callback
from eligibility.train.progress import Progress, metrics

if TYPE_CHECKING:
    from eligibility.train.learner import Reinforce


class WandbCallback(Callback):
    """Log each rollout as a step of a Weights & Biases run."""

    def __init__(self, project: str, **options: Any) -> None:
        try:
            import wandb
        except ImportError as error:
            raise MissingDependencyError(
                "the package `wandb`",
                "no such package",
                "eligibility with its wandb extra",
                'pip install "eligibility[train,wandb]"',
            ) from error
        self._init, self._options = wandb.init, {"project": project, **options}
        self._run: Any = None

    def on_training_start(self, model: Reinforce) -> None:
        """Begin a run with the config as its own."""
        self._run = self._init(config=asdict(model.config), **self._options)

    def on_rollout_end(self, progress: Progress) -> None:
        """Log the numbers at the number of environment steps."""
        self._run.log({**metrics(progress), "episodes": progress.episodes}, step=progress.steps)

    def on_training_end(self) -> None:
        """Finish the run: what is still on its way is sent."""
        self._run.finish()
