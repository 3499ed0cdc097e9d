"""A model as a checkpoint and back: which tensors and facts make it continue bit for bit."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from eligibility.errors import InvalidValueError
from eligibility.train.checkpoint import read_checkpoint, write_checkpoint
from eligibility.train.progress import Progress
from eligibility.train.state_names import named, part_of
from eligibility.train.user_network import UserNetwork

if TYPE_CHECKING:
    from eligibility.train.learner import Reinforce

# The options that say how long to train, not what to train.
CHANGEABLE = {"steps", "stop_at", "threads"}
# The facts without which nothing can be restored.
_NEEDED = ("config", "progress", "recent")


def save(model: Reinforce, path: str | Path) -> Path:
    """Write config, weights, optimizer, baseline and counters to one file."""
    tensors = named("network", model.network.state_dict())
    for number, parameter in enumerate(model.network.parameters()):
        tensors |= named(f"optimizer.{number}", model.optimizer.state[parameter])
    tensors |= named("gradient", model.gradient.state_dict())
    progress = asdict(replace(model.progress, training_seconds=0.0))  # same run, same bytes
    facts = {
        "config": asdict(model.config),
        "progress": progress,
        "recent": [*model.recent],
        "own_environment": model.supply.coded,
        "own_network": isinstance(model.network, UserNetwork),
    }
    return write_checkpoint(path, tensors, facts)


def read(path: str | Path, changes: dict[str, Any]) -> tuple[dict[str, Any], Saved]:
    """The options to make the model with, changed as wished, and what then to give it."""
    check_changes(changes)
    tensors, facts = read_checkpoint(path, needed=_NEEDED)
    return {**facts["config"], **changes}, Saved(tensors, facts)


def check_changes(changes: dict[str, Any]) -> None:
    """Raise for a change of an option that says what to train."""
    for name in changes.keys() - CHANGEABLE:
        raise InvalidValueError(
            f"`{name}`",
            "a new value for a saved model",
            "changes of " + ", ".join(sorted(CHANGEABLE)),
            "train a new model",
        )


class Saved:
    """The content of a checkpoint, to be given to a new model of the same config."""

    def __init__(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        self._tensors, self._facts = tensors, facts

    def check_code(self, env: Any, network: Any) -> None:
        """Raise unless what the model was made with, and is no data, is given again."""
        for name, given, kind in (
            ("env", env, "function or vector environment"),
            ("network", network, "module or function"),
        ):
            own = self._facts.get("own_environment" if name == "env" else "own_network", False)
            if own and given is None:
                raise InvalidValueError(
                    f"`{name}`",
                    "none",
                    f"the {kind} that the model was made with: `load(…, {name}=…)`",
                    "a checkpoint has weights, no code",
                )
            if given is not None and not own:
                raise InvalidValueError(
                    f"`{name}`",
                    "one for a model that was made without",
                    "none",
                    "leave it away",
                )

    def restore(self, model: Reinforce) -> None:
        """Make ``model`` what was saved."""
        tensors = self._tensors
        try:
            model.network.load_state_dict(part_of(tensors, "network"))
        except RuntimeError as error:  # its message is a list of names and shapes
            raise InvalidValueError(
                "`network`",
                f"another network than the checkpoint's ({' '.join(str(error).split())})",
                "the network that the model was made with",
                "pass the same module or function as then",
            ) from error
        for number, parameter in enumerate(model.network.parameters()):
            model.optimizer.state[parameter] = part_of(tensors, f"optimizer.{number}")
        model.gradient.load_state_dict(part_of(tensors, "gradient"))
        model.recent = deque(self._facts["recent"], maxlen=model.recent.maxlen)
        known = {field.name for field in fields(Progress)}
        facts = {name: value for name, value in self._facts["progress"].items() if name in known}
        model.progress = model.judged(Progress(**facts), model.recent)
