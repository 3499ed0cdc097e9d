"""The models of a program: which are there, and which is trained."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch.optim import Optimizer

from eligibility.audit.trainers.gradients import Rows

_PERTURBATION = 0.1  # standard deviation of what is added to a parameter


class Models:
    """Every model of the probe's that has run."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, Rows]] = {}
        self._made: WeakValueDictionary[int, Any] = WeakValueDictionary()
        self._groups: list[Any] = []  # of parameters, that optimizers were given
        self._perturbs = False

    def watch(self, kind: Any) -> None:
        """Note every model of a class when it is made, by its constructor or as a copy."""
        stock = kind.__new__

        def make(cls: Any, *args: Any, **options: Any) -> Any:
            plain = stock is object.__new__
            model = stock(cls) if plain else stock(cls, *args, **options)
            self._made[id(model)] = model
            return model

        kind.__new__ = staticmethod(make)

    def watch_optimizers(self) -> None:
        """Note every parameter that an optimizer is given."""
        stock = Optimizer.add_param_group

        def add(optimizer: Any, group: dict[str, Any]) -> None:
            stock(optimizer, group)
            self._groups.append(optimizer.param_groups[-1])
            if self._perturbs:
                perturb(self._groups[-1:])

        Optimizer.add_param_group = add  # type: ignore[assignment, method-assign]

    def perturb(self) -> None:
        """Give other values to all trained parameters, and to those of later optimizers."""
        self._perturbs = True
        perturb(self._groups)

    def follow(self, model: Any) -> None:
        """Remember what it scores from now on."""
        if id(model) not in self._known:
            self._known[id(model)] = (model, Rows(model))

    def known(self) -> set[int]:
        """Those that have run."""
        return set(self._known)

    def rows(self, model: Any) -> Rows | None:
        """What a model has scored."""
        known = self._known.get(id(model))
        return known[1] if known is not None else None

    @contextmanager
    def unread(self) -> Iterator[None]:
        """Within it the audit computes gradients, which are not the program's."""
        every = [rows for _, rows in self._known.values()]
        for rows in every:
            rows.reads = False
        yield
        for rows in every:
            rows.reads = True

    def forget(self) -> None:
        """Drop what was found before the next outcome."""
        for _, rows in self._known.values():
            rows.forget()

    def of_parameters(self, parameters: list[Any]) -> Any:
        """The model with some of these parameters; None if there is none."""
        wanted = {id(parameter) for parameter in parameters}
        models = [model for model, _ in self._known.values()]
        return next((m for m in models if any(id(p) in wanted for p in m.parameters())), None)

    def alike(self, which: int) -> list[int]:
        """The other models whose weights are this one's."""
        own = list(self.by_id(which).parameters()) if which else []
        others = [(key, list(other.parameters())) for key, (other, _) in self._known.items()]
        return [
            key
            for key, parameters in others
            if key != which
            and len(parameters) == len(own)
            and all(torch.equal(one, other) for one, other in zip(parameters, own, strict=True))
        ]

    def by_id(self, which: int) -> Any:
        """The model that a branch has told of; None: it was not there before the branch."""
        known = self._known.get(which)
        return known[0] if known is not None else self._made.get(which)


def perturb(groups: list[Any]) -> None:
    """Give these parameters of an optimizer other values."""
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in (parameter for group in groups for parameter in group["params"]):
            parameter.add_(_PERTURBATION * torch.randn(parameter.shape, generator=draw))


def is_without_adapters(model: Any) -> bool:
    """Whether its adapters are off at the moment."""
    return any(getattr(m, "disable_adapters", False) is True for m in model.modules())
