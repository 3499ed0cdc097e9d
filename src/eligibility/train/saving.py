"""A model as a checkpoint and back: which tensors and which header make it continue bit for bit."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from eligibility.errors import InvalidValueError
from eligibility.scalars import check_path
from eligibility.train.checkpoint import damaged, named, part_of, read_checkpoint, write_checkpoint
from eligibility.train.checkpoint_header import Header, read_header
from eligibility.train.config import RECURRENT
from eligibility.train.domains import shown
from eligibility.train.environments import check_trusted
from eligibility.train.user_network import UserNetwork

if TYPE_CHECKING:
    from eligibility.train.learner import Reinforce

# The options that say how long to train and how fast, not what; and where.
CHANGEABLE = {"env_kwargs", "steps", "stop_at", "threads", "learning_rate", "natural_gradient"}
# Tensors that count, or are sums of squares.
_NOT_NEGATIVE = re.compile(r"\.(step|exp_avg_sq|count|squares)(\.|$)")


def save(model: Reinforce, path: str | Path) -> Path:
    """Write config, weights, optimizer, baseline and counters to one file."""
    check_path(path)
    header = Header(
        model.config,
        replace(model.progress, training_seconds=0.0),  # same run, same bytes
        tuple(model.recent),
        own_environment=model.source.coded,
        own_network=isinstance(model.network, UserNetwork),
    )
    return write_checkpoint(path, _tensors(model), asdict(header))


def _tensors(model: Reinforce) -> dict[str, Tensor]:
    """All that a model has learned."""
    tensors = named("network", model.network.state_dict())
    for number, parameter in enumerate(model.network.parameters()):
        tensors |= named(f"optimizer.{number}", model.optimizer.state[parameter])
    return tensors | named("gradient", model.gradient.state_dict())


def read(path: str | Path, changes: dict[str, Any]) -> Saved:
    """What a checkpoint says, and the arguments of the model built from it."""
    check_path(path)
    check_changes(changes)
    tensors, found = read_checkpoint(path)
    try:
        header = read_header(found)
    except InvalidValueError as error:
        raise damaged(Path(path), f"{error.what} is {error.got}") from error
    return Saved(Path(path), tensors, header)


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

    def __init__(self, path: Path, tensors: dict[str, Tensor], header: Header) -> None:
        self._path, self._tensors, self._header = path, tensors, header
        self.options = asdict(header.config)

    def check_code(
        self, env: Any, network: Any, allow_modules: Collection[str], changes: dict[str, Any]
    ) -> None:
        """Raise unless code comes from the caller alone: what the model was made with, again."""
        source = f"the checkpoint `{self._path}`"
        for name, given, own, kind in (
            ("env", env, self._header.own_environment, "function or vector environment"),
            ("network", network, self._header.own_network, "module or function"),
        ):
            if own and given is None:
                raise InvalidValueError(
                    f"`{name}`",
                    "none",
                    f"the {kind} the model was created with: `load(…, {name}=…)`",
                    "a checkpoint holds weights, not code",
                )
        if network is not None and not self._header.own_network:
            raise InvalidValueError(
                "`network`", "a network for a model that was created without one", "none", "omit it"
            )
        if env is None:
            check_trusted(self._header.config.env, allow_modules, source)
        if "env_kwargs" not in changes:
            check_trusted(self._header.config.env_kwargs, allow_modules, source)
        self._check_widths()

    def _check_widths(self) -> None:
        """Raise unless the weights are as wide as the network that is about to be made."""
        if self._header.own_network:
            return
        config = self._header.config
        sizes, several = config.hidden_sizes, RECURRENT[config.recurrent]
        plain = sizes[:-1] if several else sizes
        biases = [(f"layers.{2 * number}.bias", width) for number, width in enumerate(plain)]
        if several:
            biases.append(("memory.cell.bias_hh", several * sizes[-1]))
        for name, width in biases:
            found = self._tensors.get(f"network.{name}")
            if found is None or found.shape != (width,):
                raise damaged(self._path, f"`hidden_sizes` has {width} where the weights have not")

    def restore(self, model: Reinforce) -> None:
        """Make ``model`` what was saved, unless the tensors are not those of such a model."""
        self._check_tensors(model)
        tensors = {name: tensor.clone() for name, tensor in self._tensors.items()}
        model.network.load_state_dict(part_of(tensors, "network"))
        for number, parameter in enumerate(model.network.parameters()):
            model.optimizer.state[parameter] = part_of(tensors, f"optimizer.{number}")
        model.gradient.load_state_dict(part_of(tensors, "gradient"))
        model.recent = deque(self._header.recent, maxlen=model.recent.maxlen)
        model.progress = model.judged(self._header.progress, model.recent)

    def _check_tensors(self, model: Reinforce) -> None:
        """Raise unless the tensors are those of the model, in shape, dtype and range."""
        mine = _tensors(model)
        wrong = _difference(part_of(self._tensors, "network"), part_of(mine, "network"))
        if wrong and not self._header.own_network and model.config.env != self._header.config.env:
            raise InvalidValueError(
                "`env`",
                f"`{model.config.env}`, which needs other weights ({wrong})",
                f"an environment with the spaces of `{self._header.config.env}`",
                "pass one, or train a policy for this one",
            )
        if wrong:  # perhaps no damage: what the caller gave may be another than then
            raise InvalidValueError(
                "`network`",
                f"a network other than the checkpoint's ({wrong})",
                "the network and the spaces that the model was created with",
                "pass the same module or function, and an environment with these spaces",
            )
        learned = named("gradient", model.gradient.learned_state())
        expected = [{**mine, **learned}, mine]  # baselines know something, or nothing yet
        differences = [_difference(self._tensors, one) for one in expected]
        if all(differences):
            raise damaged(self._path, differences[0])
        if self._header.own_network:  # a module of the user's own may have any numbers
            return
        for name, tensor in self._tensors.items():
            if not torch.isfinite(tensor).all():
                raise damaged(self._path, f"`{name}` is not finite")
            if _NOT_NEGATIVE.search(name) and (tensor < 0).any():
                raise damaged(self._path, f"`{name}` is negative")


def _difference(found: dict[str, Tensor], expected: dict[str, Tensor]) -> str:
    """The first tensor that is another, or of another shape or dtype; empty: there is none."""
    for name in sorted({*found} ^ {*expected}):
        return f"`{shown(name)[1:-1]}` is {'missing' if name in expected else 'unknown'}"
    for name, tensor in found.items():
        wanted = expected[name]
        if tensor.shape != wanted.shape or tensor.dtype != wanted.dtype:
            got, needed = (f"{one.dtype} {[*one.shape]}" for one in (tensor, wanted))
            return f"`{name}` is {got}, not {needed}"
    return ""
