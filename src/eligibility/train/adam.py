"""Adam, without what torch's own would load on its first use."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

# Those of Kingma & Ba, as in torch.
_DECAYS = (0.9, 0.999)
_EPSILON = 1e-8


class Adam(torch.optim.Optimizer):
    r"""``θ ← θ − α m̂ / (√v̂ + ε)``, bit for bit as ``torch.optim.Adam(foreach=False)``.

    The methods of torch's that are switched off under ``torch.compile`` import the compiler when
    they are first called, which takes longer than it takes to solve CartPole. Here are those that
    training needs. It is one of torch's optimizers to schedulers, hooks and `eligibility audit`.

    References:
        Kingma & Ba 2015, "Adam: a method for stochastic optimization", algorithm 1.
    """

    def __init__(self, parameters: Iterable[torch.nn.Parameter], lr: float) -> None:
        super().__init__(parameters, {"lr": lr})
        for parameter in self._parameters():
            self.state[parameter] = {
                "step": torch.zeros(()),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """All parameters are one group."""
        parameters = list(param_group["params"])
        self.param_groups.append({**self.defaults, **param_group, "params": parameters})

    def zero_grad(self, set_to_none: bool = True) -> None:
        for parameter in self._parameters():
            if set_to_none:
                parameter.grad = None
            elif parameter.grad is not None:
                parameter.grad.zero_()

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]  # torch declares two overloads
        """One step against each ``.grad``; parameters without one stay."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._move(parameter, parameter.grad, group["lr"])
        return loss

    def _move(self, parameter: Tensor, gradient: Tensor, rate: float) -> None:
        state, (first, second) = self.state[parameter], _DECAYS
        state["step"] += 1
        steps = state["step"].item()
        mean = state["exp_avg"].lerp_(gradient, 1 - first)
        square = state["exp_avg_sq"].mul_(second).addcmul_(gradient, gradient, value=1 - second)
        scale = (square.sqrt() / math.sqrt(1 - second**steps)).add_(_EPSILON)
        rate = min(rate / (1 - first**steps), torch.finfo(parameter.dtype).max)
        parameter.addcdiv_(mean, scale, value=-rate)

    def _parameters(self) -> list[torch.nn.Parameter]:
        return [parameter for group in self.param_groups for parameter in group["params"]]
