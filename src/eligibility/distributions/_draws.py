"""What OneHotCategorical and Multinomial share: draws from a Categorical, written as a vector."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from eligibility.distributions._drop_in import DropIn
from eligibility.distributions.masked_categorical import Categorical
from eligibility.rules.rule import read_parameter


class Draws(DropIn):
    """Mixed in before one of torch's classes; the parameter is the Categorical's."""

    _categorical: Categorical

    @property
    def _param(self) -> Tensor:
        return self._categorical._param

    @property
    def given_parameter(self) -> str:  # type: ignore[override]  # what it holds knows
        """What it was constructed with: "probs" or "logits"."""
        return self._categorical.given_parameter

    @property
    def weights(self) -> Tensor | None:
        """The weights as they were given; None if logits were."""
        return self._categorical.weights

    @property
    def mask(self) -> Tensor | None:
        """The mask as it was given, or None."""
        return self._categorical.mask

    def _expand_into(self, new: Any, batch_shape: torch.Size) -> None:
        new._categorical = self._categorical.expand(batch_shape)

    def __repr__(self) -> str:
        return repr(self._categorical).replace("Categorical", type(self).__name__, 1)


@read_parameter.register
def _(dist: Draws, name: str) -> Any:
    return read_parameter(dist._categorical, name)
