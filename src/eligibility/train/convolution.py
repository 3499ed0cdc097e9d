"""The convolutional layers that the default network sees an image through."""

from __future__ import annotations

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
