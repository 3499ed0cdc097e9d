"""``Tuple`` and ``Dict``: independent parts, each with its own policy; and which policy that is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor

from eligibility.errors import EligibilityError, InvalidTypeError, InvalidValueError
from eligibility.spaces import FREE, built_of, kind_of
from eligibility.train.domains import shown
from eligibility.train.policies.gaussian import SquashedGaussianPolicy
from eligibility.train.policies.policy import Policy, policy_of


class CompositePolicy(Policy):
    """The parts are drawn independently, so log π is a sum over them.

    The outputs are those of the first part, of the second, …, then the constants of the first,
    of the second, …: constants come last in every policy. Actions are kept as one row of numbers;
    among floating-point ones, indices and counts up to 2²⁴ are exact.
    """

    def __init__(self, parts: Mapping[Any, Policy]) -> None:
        self._parts = dict(parts)
        several = list(self._parts.values())
        self._constants = [part.constants for part in several]
        self._varying = [part.size - part.constants for part in several]
        self.constants, self.size = sum(self._constants), sum(part.size for part in several)
        entropies = [part.largest_entropy for part in several if part.largest_entropy is not None]
        self.largest_entropy = sum(entropies) if len(entropies) == len(several) else None
        places = self._split(torch.arange(self.size))  # of each part's outputs among all
        self._columns = [own.numpy() for own in places]
        self._noises = [int(np.prod(part.noise_shape)) for part in several]
        self.noise_shape = (sum(self._noises),)
        self.noise_dtype = reduce(torch.promote_types, (part.noise_dtype for part in several))
        self._actions = [int(np.prod(part.action_shape)) for part in several]
        self.action_shape = (sum(self._actions),)
        self.action_dtype = reduce(torch.promote_types, (part.action_dtype for part in several))

    @property
    def leaves(self) -> list[Policy]:
        return [leaf for part in self._parts.values() for leaf in part.leaves]

    def codes(self, masks: Any) -> np.ndarray[Any, Any]:
        """A mask is a dict, or a tuple, of the parts' masks; None, or nothing, leaves one free."""
        for mask in [masks] if isinstance(masks, Mapping) else masks:
            self._check_names(mask)
        if not isinstance(masks, Mapping):
            masks = {key: [_part_of(mask, key) for mask in masks] for key in self._parts}
        number = max(len(masks[key]) for key in self._parts if key in masks)
        codes = np.full((number, self.size), FREE, np.uint8)
        for (key, part), columns in zip(self._parts.items(), self._columns, strict=True):
            given = masks.get(key, [])
            rows = [row for row, mask in enumerate(given) if mask is not None]
            if rows:
                codes[np.array(rows)[:, None], columns] = part.codes([given[row] for row in rows])
        return codes

    def stuck(self, codes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        parts = [part.stuck(codes[:, columns]) for part, columns in self._zip(self._columns)]
        return np.asarray(np.any(parts, 0))

    def fill_noise(self, noise: Tensor, generator: torch.Generator) -> None:
        for part, own in self._zip(torch.split(noise, self._noises, -1)):
            part.fill_noise(own.unflatten(-1, part.noise_shape or (1,)), generator)

    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        noises = torch.split(noise, self._noises, -1)
        return self._row(
            part.sample(own, z.to(part.noise_dtype).reshape(len(z), *part.noise_shape))
            for part, own, z in self._zip(self._split(outputs), noises)
        )

    def mode(self, outputs: Tensor) -> Tensor:
        return self._row(part.mode(own) for part, own in self._zip(self._split(outputs)))

    def eligibility(self, outputs: Tensor, action: Tensor) -> Tensor:
        return self._join(
            part.eligibility(own, taken)
            for part, own, taken in self._zip(self._split(outputs), self._split_actions(action))
        )

    def entropy(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        both = [part.entropy(own) for part, own in self._zip(self._split(outputs))]
        entropies, gradients = zip(*both, strict=True)
        return torch.stack(entropies).sum(0), self._join(gradients)

    def fisher(self, outputs: Tensor) -> Callable[[Tensor], Tensor]:
        products = [part.fisher(own) for part, own in self._zip(self._split(outputs))]

        def product(tangent: Tensor) -> Tensor:
            tangents = self._split(tangent)
            return self._join(own(u) for own, u in zip(products, tangents, strict=True))

        return product

    def divergence(self, outputs: Tensor, other: Tensor) -> Tensor:
        both = self._zip(self._split(outputs), self._split(other))
        return torch.stack([part.divergence(own, new) for part, own, new in both]).sum(0)

    def to_environment(self, action: Tensor) -> Any:
        parts = zip(self._parts.items(), self._split_actions(action), strict=True)
        actions = {key: part.to_environment(own) for (key, part), own in parts}
        return actions if isinstance(next(iter(actions)), str) else tuple(actions.values())

    def first(self, actions: Any) -> Any:
        if isinstance(actions, dict):
            return {key: part.first(actions[key]) for key, part in self._parts.items()}
        return tuple(part.first(own) for part, own in self._zip(actions))

    def _check_names(self, mask: Any) -> None:
        """Raise if the masks are not those of the parts, by name or, of a Tuple, by place."""
        names = [*self._parts]
        places = names == [*range(len(names))]
        if mask is None:
            return
        if isinstance(mask, Mapping):
            # Gymnasium's vectors say by "_name" which environments have a "name"
            others = mask.keys() - {*names, *(f"_{name}" for name in names)}
            fits = bool(mask) and not others
            got = f"a dict with the keys {shown([*mask])}" if mask else "an empty dict"
        else:
            by_place = places and isinstance(mask, (Sequence, np.ndarray))
            fits = by_place and len(mask) == len(names)
            got = f"{len(mask)} masks" if by_place else type(mask).__name__
        if not fits:
            raise InvalidValueError(
                "the action mask",
                got,
                f"{len(names)} masks" if places else f"a dict with some of the keys {shown(names)}",
                "name the parts of the action space that have a mask; None is no mask",
            )

    def _zip(self, *others: Any) -> Any:
        return zip(self._parts.values(), *others, strict=True)

    def _split(self, outputs: Tensor) -> list[Tensor]:
        """The outputs of each part, its constants last."""
        both = torch.split(outputs, [*self._varying, *self._constants], -1)
        varying, constants = both[: len(self._parts)], both[len(self._parts) :]
        return [
            torch.cat([own, last], -1) if last.shape[-1] else own
            for own, last in zip(varying, constants, strict=True)
        ]

    def _join(self, parts: Any) -> Tensor:
        """The inverse of `_split`."""
        both = [
            torch.split(part, [varying, constants], -1)
            for part, varying, constants in zip(parts, self._varying, self._constants, strict=True)
        ]
        return torch.cat([own for own, _ in both] + [last for _, last in both], -1)

    def _split_actions(self, action: Tensor) -> Iterator[Tensor]:
        for part, own in self._zip(torch.split(action, self._actions, -1)):
            yield own.to(part.action_dtype).reshape(*own.shape[:-1], *part.action_shape)

    def _row(self, actions: Any) -> Tensor:
        rows = [action.reshape(len(action), -1).to(self.action_dtype) for action in actions]
        return torch.cat(rows, -1)


def _part_of(mask: Any, key: Any) -> Any:
    """The mask of a part in that of the whole; None: there is none."""
    if mask is None or isinstance(mask, Mapping):
        return mask and mask.get(key)
    return mask[key]


def policy_for(space: Any, squash: bool = False) -> Policy:
    """The policy for the action space of one environment."""

    def of_leaf(leaf: Any, place: str) -> Policy:
        policy = policy_of(kind_of(leaf), leaf, squash)
        if policy is None:
            raise _unsupported(leaf, place)
        return policy

    policy = built_of(space, of_leaf, CompositePolicy)
    if squash and not any(isinstance(leaf, SquashedGaussianPolicy) for leaf in policy.leaves):
        raise InvalidValueError(
            "`squash_actions`", "True", "a Box among the actions", f"{space} has none: omit it"
        )
    return policy


def _unsupported(space: Any, place: str) -> EligibilityError:
    return InvalidTypeError(
        f"the action space at `{place}`" if place else "the action space",
        str(space),
        "Discrete, MultiDiscrete, MultiBinary, Counts, Box of floating-point numbers, or a Dict "
        "or Tuple of these",
        "wrap the environment, for instance in gymnasium.wrappers.TransformAction",
    )
