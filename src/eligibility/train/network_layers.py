"""The parts of the default network: normalisation, convolutions, memory and its first inputs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from eligibility.train.observations import Image

# (channels, kernel, stride) of each layer, by the image's shorter side, from this one on.
_LAYERS = {
    36: ((16, 8, 4), (32, 4, 2)),
    12: ((16, 4, 2), (32, 3, 2)),
    5: ((16, 3, 1), (32, 3, 1)),
}


class Convolution(nn.Module):
    """One image among the features ``[N, features]`` to ``[N, outputs]``: two layers with ReLU.

    ====================  ============================================
    shorter side          channels, kernel, stride of the layers
    ====================  ============================================
    36 and more           16, 8×8, 4; 32, 4×4, 2 (Mnih et al. 2016)
    12 to 35              16, 4×4, 2; 32, 3×3, 2
    5 to 11               16, 3×3, 1; 32, 3×3, 1
    ====================  ============================================

    Weights are normal with variance 2/fan-in, which ReLU needs to keep the scale of the signal.

    References:
        Mnih et al. 2016, "Asynchronous methods for deep reinforcement learning", §5.1; He et al.
        2015, "Delving deep into rectifiers", eq. (10).
    """

    def __init__(self, image: Image, generator: torch.Generator) -> None:
        super().__init__()
        self.image = image
        blank = image.channels_first(torch.zeros(1, image.stop))
        shorter = min(blank.shape[2:])
        layers: list[nn.Module] = []
        channels = blank.shape[1]
        for width, kernel, stride in _LAYERS[max(side for side in _LAYERS if side <= shorter)]:
            layers += [_convolution(channels, width, kernel, stride, generator), nn.ReLU()]
            channels = width
        self.layers = nn.Sequential(*layers, nn.Flatten())
        with torch.no_grad():
            self.outputs = int(self.layers(blank).shape[1])

    def forward(self, features: Tensor) -> Tensor:
        """The last layer's activations in one row."""
        seen: Tensor = self.layers(self.image.channels_first(features))
        return seen


def _convolution(
    inputs: int, outputs: int, kernel: int, stride: int, generator: torch.Generator
) -> nn.Conv2d:
    """A layer drawn from ``generator`` alone."""
    layer = nn.utils.skip_init(nn.Conv2d, inputs, outputs, kernel, stride=stride)  # type: ignore[no-untyped-call]  # torch
    assert isinstance(layer, nn.Conv2d)
    with torch.no_grad():
        layer.weight.normal_(0, (2 / (inputs * kernel**2)) ** 0.5, generator=generator)
        layer.bias.zero_()  # type: ignore[union-attr]  # it has one
    return layer


_CELLS: dict[str, type[nn.GRUCell | nn.LSTMCell]] = {"gru": nn.GRUCell, "lstm": nn.LSTMCell}
# The bias that decides how much a first network keeps of what it knows: σ(2) = 88 % at each step.
# With 0 it is half, and a cue of thirty steps ago is a billionth of what it was.
_KEEPING = 2.0


class Memory(nn.Module):
    """``[N, inputs]`` to ``[N, width]`` by a GRU or an LSTM.

    Weights are normal with variance 1/fan-in and biases 0, as in the other layers, but the bias of
    an LSTM's forget gate, or of a GRU's update gate, is 2: a first network remembers. A state is
    the outputs, and behind them the cells of an LSTM.

    References:
        Hochreiter & Schmidhuber 1997, Neural Computation 9:1735-1780; Cho et al. 2014, "Learning
        phrase representations using RNN encoder-decoder". The bias: Gers, Schmidhuber & Cummins
        2000, Neural Computation 12:2451-2471; Jozefowicz et al. 2015, "An empirical exploration of
        recurrent network architectures", §2.2.
    """

    def __init__(self, kind: str, inputs: int, width: int, generator: torch.Generator) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=()):
            self.cell = _CELLS[kind](inputs, width)
        self.state_size = width if kind == "gru" else 2 * width
        with torch.no_grad():
            for name, weight in self.cell.named_parameters():
                if weight.ndim > 1:
                    weight.normal_(0, weight.shape[1] ** -0.5, generator=generator)
                else:
                    weight.zero_()
                if name == "bias_ih":
                    weight[width : 2 * width] = _KEEPING  # of both kinds the second gate

    def forward(self, inputs: Tensor, episode: Tensor | None = None) -> Tensor:
        """The outputs of all steps of some episodes, ``[N, inputs]`` in the order of time.

        That is the first steps of all episodes, then the second ones of those that have one, … Of
        each step ``episode`` ``[N]`` has the number, rising among those of one time; None: there is
        one.
        """
        if episode is None:
            episode = torch.zeros(len(inputs), dtype=torch.int64)
        later = torch.nn.functional.pad(episode[1:] <= episode[:-1], (1, 0))  # than the row above
        sizes = torch.bincount(later.cumsum(0)).tolist()
        state, going, outputs = self.start(sizes[0]), episode[: sizes[0]], []
        rows = zip(torch.split(inputs, sizes), torch.split(episode, sizes), strict=True)
        for row, episodes in rows:
            if len(episodes) < len(going):
                state, going = state[torch.isin(going, episodes)], episodes
            output, state = self.step(row, state)
            outputs.append(output)
        return torch.cat(outputs)

    def step(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """The outputs ``[B, width]`` and the next states ``[B, state_size]``."""
        if isinstance(self.cell, nn.LSTMCell):
            outputs, cells = self.cell(inputs, state.chunk(2, -1))
            return outputs, torch.cat([outputs, cells], -1)
        outputs = self.cell(inputs, state)
        return outputs, outputs

    def start(self, number: int) -> Tensor:
        """The states of that many episodes that begin: zeros ``[number, state_size]``."""
        weight: Tensor = next(self.cell.parameters())
        return weight.new_zeros(number, self.state_size)


@dataclass(frozen=True, eq=False)
class Numbers:
    """Rows of numbers, ``[N, D]``."""

    rows: Tensor

    def through(self, weight: Tensor, bias: Tensor) -> Tensor:
        """``x Wᵀ + b``: weights ``[P, D]`` and biases ``[P]`` to ``[N, P]``."""
        return torch.nn.functional.linear(self.rows, weight, bias)

    def back(self, cotangent: Tensor) -> Tensor:
        """``cᵀ x``: ``[N, P]`` to ``[P, D]``, its gradient in the weights."""
        return cotangent.T @ self.rows


@dataclass(frozen=True, eq=False)
class Ones:
    """Rows of 0 and 1 by the indices of the ones, ``[N, parts]``: products without the zeros."""

    indices: Tensor
    width: int

    def through(self, weight: Tensor, bias: Tensor) -> Tensor:
        return weight.T[self.indices].sum(1) + bias

    def back(self, cotangent: Tensor) -> Tensor:
        gradient = cotangent.new_zeros(self.width, cotangent.shape[-1])
        for part in self.indices.unbind(-1):
            gradient.index_add_(0, part, cotangent)
        return gradient.T


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
        batch, count = features.double(), len(features)
        mean = batch.mean(0)
        squares = (batch - mean).square_().sum(0)
        total, delta = self.count + count, mean - self.mean
        self.mean += delta * (count / total)
        self.squares += squares + delta.square() * (self.count * count / total)
        self.count.copy_(total)
        variance = self.squares / self.count
        self.shift.copy_(self.mean)
        self.factor.copy_((variance + 1e-8).rsqrt())
