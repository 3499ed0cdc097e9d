"""The default network: an encoding of the observation, tanh layers, one linear head."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from eligibility.train.observations import Observations
from eligibility.train.policies import Policy


class Network(nn.Module):
    """Stored observations ``[N, *shape]`` to the policy's outputs ``[N, P]``.

    Hidden weights are normal with variance 1/fan-in, which keeps the scale of the signal; the
    head starts 100 times smaller, so that the first policy is close to uniform; biases start at 0,
    and so do the outputs that do not depend on the observation.
    """

    def __init__(
        self,
        observations: Observations,
        hidden_sizes: tuple[int, ...],
        policy: Policy,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.observations = observations
        layers: list[nn.Module] = []
        for inputs, width in pairwise((observations.features, *hidden_sizes)):
            layers += [_linear(inputs, width, 1.0, generator), nn.Tanh()]
        last = hidden_sizes[-1] if hidden_sizes else observations.features
        head = _linear(last, policy.size - policy.constants, 0.01, generator)
        self.layers = nn.Sequential(*layers, head)
        self.constants = nn.Parameter(torch.zeros(policy.constants)) if policy.constants else None

    def forward(self, observation: Tensor) -> Tensor:
        """The outputs of each observation."""
        outputs: Tensor = self.layers(self.observations.encode(observation))
        if self.constants is None:
            return outputs
        return torch.cat([outputs, self.constants.expand(len(outputs), -1)], -1)


def _linear(inputs: int, outputs: int, scale: float, generator: torch.Generator) -> nn.Linear:
    """A layer drawn from ``generator`` alone: torch's global generator is left as it is."""
    layer = nn.utils.skip_init(nn.Linear, inputs, outputs)  # type: ignore[no-untyped-call]  # torch
    with torch.no_grad():
        layer.weight.normal_(0, scale / inputs**0.5, generator=generator)
        layer.bias.zero_()
    assert isinstance(layer, nn.Linear)
    return layer
