"""Running normalisation: what training has observed so far has mean 0 and variance 1."""

from __future__ import annotations

import torch
from torch import Tensor, nn

# Normalised features are cut off here: a feature that has hardly moved so far may jump.
LARGEST = 10.0


class RunningNormalization(nn.Module):
    r"""``(x − mean) / √(variance + 10⁻⁸)``, cut off at ±10, of the features that are numbers.

    Mean and variance are those of every observation given to `update`, exactly as if all had been
    kept: a batch is merged by the pairwise form of Welford's recurrence. They are buffers, so a
    checkpoint has them. Before the first `update` the features pass as they are.

    The trainer updates after the weights, never between acting and learning: the gradient is
    that of the policy that acted. `eligibility.Reinforce.evaluate` and ``predict`` never update.

    Args:
        numbers: Which features to normalise, bool ``[features]``; the others pass as they are.

    Example:
        >>> normalization = RunningNormalization(torch.tensor([True, False]))
        >>> normalization.update(torch.tensor([[1.0, 1.0], [5.0, 0.0]]))
        >>> normalization(torch.tensor([[5.0, 1.0], [900.0, 0.0]]))
        tensor([[ 1.,  1.],
                [10.,  0.]])

    References:
        Chan, Golub & LeVeque 1979, "Updating formulae and a pairwise algorithm for computing
        sample variances", eq. (2.1); Welford 1962, Technometrics 4:419-420.
    """

    count: Tensor
    mean: Tensor
    squares: Tensor
    shift: Tensor
    factor: Tensor

    def __init__(self, numbers: Tensor) -> None:
        super().__init__()
        self._numbers, zero = numbers, torch.zeros(len(numbers), dtype=torch.float64)
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("mean", zero)  # of each feature
        self.register_buffer("squares", zero.clone())  # Σ (x − mean)²
        self.register_buffer("shift", zero.float())  # what `forward` subtracts,
        self.register_buffer("factor", zero.float() + 1)  # and what it multiplies by

    def forward(self, features: Tensor) -> Tensor:
        """The normalised features, ``[N, features]``."""
        normalised = ((features - self.shift) * self.factor).clamp(-LARGEST, LARGEST)
        return torch.where(self._numbers, normalised, features) if self.count else features

    def update(self, features: Tensor) -> None:
        """Take a batch of features ``[N, features]`` into the mean and the variance."""
        batch = features.double()
        mean = batch.mean(0)
        squares = (batch - mean).square_().sum(0)
        self.merge(torch.tensor(float(len(batch)), dtype=torch.float64), mean, squares)

    def merge(self, count: Tensor, mean: Tensor, squares: Tensor) -> None:
        """Take in ``count`` observations with this mean and this sum of squared deviations."""
        total, delta = self.count + count, mean - self.mean
        self.mean += delta * (count / total)
        self.squares += squares + delta.square() * (self.count * count / total)
        self.count.copy_(total)
        variance = self.squares / self.count
        self.shift.copy_(self.mean)
        self.factor.copy_((variance + 1e-8).rsqrt())
