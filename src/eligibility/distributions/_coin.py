"""What Bernoulli and Binomial share: a coin with probability p, or with log-odds log(p/(1 − p))."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.distributions.utils import broadcast_all, lazy_property

from eligibility.distributions._drop_in import DropIn, one_of, safe_log
from eligibility.errors import InvalidTypeError
from eligibility.scalars import described, is_number
from eligibility.shapes import (
    check_dtype,
    check_log_odds,
    check_tensor,
    check_unit_interval,
    double_precision,
)


class Coin(DropIn):
    """Mixed in before one of torch's classes; the parameter is kept as it was given."""

    _param: Tensor

    def _take(self, probs: Any, logits: Any) -> Tensor:
        """The parameter that was given, a number or a tensor, as a tensor."""
        given, from_probs = one_of(probs, logits)
        self.given_parameter = "probs" if from_probs else "logits"
        if not isinstance(given, Tensor) and not is_number(given):
            expected = "a number or a tensor"
            raise InvalidTypeError(
                f"`{self.given_parameter}`", described(given), expected, "wrap it in torch.tensor"
            )
        if isinstance(given, Tensor):
            check_tensor(given, self.given_parameter)
        tensor: Tensor = broadcast_all(given)[0]
        check_dtype(tensor, self.given_parameter)
        return tensor

    def _check_parameter(self) -> None:
        check = check_unit_interval if self._is_from_probs else check_log_odds
        check(self._param.detach(), self.given_parameter)

    def _expand_into(self, new: Any, batch_shape: torch.Size) -> None:
        new._param = self._param.expand(batch_shape)
        new.given_parameter = self.given_parameter

    @property
    def _is_from_probs(self) -> bool:
        return self.given_parameter == "probs"

    @lazy_property
    def logits(self) -> Tensor:
        if not self._is_from_probs:
            return self._param
        return torch.logit(self._fine).to(self._param.dtype)

    @lazy_property
    def probs(self) -> Tensor:
        if self._is_from_probs:
            return self._param
        return torch.sigmoid(self._fine).to(self._param.dtype)

    @property
    def _fine(self) -> Tensor:
        """The parameter in float64: the digits of rare outcomes and of large counts count."""
        return self._param.to(double_precision(self._param.device))

    @property
    def _chance(self) -> Tensor:
        """p in float64."""
        return self._fine if self._is_from_probs else torch.sigmoid(self._fine)

    @property
    def _log_pmf(self) -> Tensor:
        """``[*batch, 2]``: log(1 − p) and log p of one coin."""
        return torch.stack(log_failure_and_success(self._fine, self._is_from_probs), -1)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.given_parameter}: {list(self._batch_shape)})"


def log_failure_and_success(parameter: Tensor, from_probs: bool) -> tuple[Tensor, Tensor]:
    """log(1 − p) and log p of a coin; neither by a subtraction that loses it, and no NaN."""
    if not from_probs:
        logsigmoid = torch.nn.functional.logsigmoid
        return logsigmoid(-parameter), logsigmoid(parameter)
    possible = parameter < 1
    failure = torch.log1p(-torch.where(possible, parameter, 0.0))
    return torch.where(possible, failure, float("-inf")), safe_log(parameter)
