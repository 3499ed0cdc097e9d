"""The default network: an encoding of the observation, hidden layers, one linear head."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, TypeGuard

import numpy as np
import torch
from torch import Tensor, nn

from eligibility.train.network_layers import (
    Convolution,
    Memory,
    Numbers,
    Ones,
    RunningNormalization,
)
from eligibility.train.observations import Observations
from eligibility.train.policies import Policy

_ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU}


class PolicyNetwork(nn.Module):
    """Kept observations ``[N, *shape]`` to the policy's outputs ``[N, P]``, whatever is between."""

    def __init__(
        self, observations: Observations, policy: Policy, numbers: Tensor, normalize: bool
    ) -> None:
        super().__init__()
        self.observations = observations
        normalizes = normalize and bool(numbers.any())
        self.normalization = RunningNormalization(numbers) if normalizes else None
        self.constants = nn.Parameter(torch.zeros(policy.constants)) if policy.constants else None

    def features(self, observation: Tensor) -> Tensor:
        """The encoded observation, ``[N, features]``."""
        features = self.observations.encode(observation)
        return features if self.normalization is None else self.normalization(features)

    def complete(self, observation: Tensor, outputs: Tensor) -> Tensor:
        """The outputs with those that do not depend on the observation, and what is forbidden."""
        if self.constants is not None:
            outputs = torch.cat([outputs, self.constants.expand(len(outputs), -1)], -1)
        forbidden = self.observations.forbidden(observation)
        return outputs if forbidden is None else outputs + forbidden

    @torch.no_grad()
    def observe(self, observation: Tensor) -> None:
        """Take observations into the running normalisation, if there is one."""
        if self.normalization is not None:
            self.normalization.update(self.observations.encode(observation))


class Network(PolicyNetwork):
    """Kept observations ``[N, *shape]`` to the policy's outputs ``[N, P]``.

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
        *,
        activation: str = "tanh",
        recurrent: str = "none",
        convolution: bool = True,
        normalize: bool = False,
    ) -> None:
        images = observations.images if convolution else ()
        flat = torch.ones(observations.features, dtype=torch.bool)
        for image in images:
            flat[image.start : image.stop] = False
        super().__init__(observations, policy, observations.numbers & flat, normalize)
        self.activation = activation
        self.convolutions = nn.ModuleList(Convolution(image, generator) for image in images)
        self._flat = flat.nonzero().squeeze(-1)
        seen = sum(layer.outputs for layer in self._convolutions()) + len(self._flat)
        widths = (seen, *hidden_sizes)
        plain = widths if recurrent == "none" else widths[:-1]
        layers: list[nn.Module] = []
        for inputs, width in pairwise(plain):
            layers += [_linear(inputs, width, 1.0, generator), _ACTIVATIONS[activation]()]
        self.memory = None
        if recurrent != "none":
            self.memory = Memory(recurrent, plain[-1], widths[-1], generator)
        head = _linear(widths[-1], policy.size - policy.constants, 0.01, generator)
        self.layers = nn.Sequential(*layers, head)

    def forward(self, observation: Tensor, episode: Tensor | None = None) -> Tensor:
        """The outputs of each observation as kept; order and ``episode`` as in `Memory.forward`."""
        if self.memory is None:
            return self.complete(observation, self._through([*self.layers], observation))
        *layers, head = self.layers
        hidden = self.memory(self._through(layers, observation), episode)
        return self.complete(observation, head(hidden))

    def start(self, number: int) -> Tensor:
        """The initial states of that many episodes, for a recurrent network."""
        assert self.memory is not None
        return self.memory.start(number)

    def step(self, observation: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """The outputs of one step of N episodes and their next states, for a recurrent network."""
        assert self.memory is not None
        *layers, head = self.layers
        hidden, state = self.memory.step(self._through(layers, observation), state)
        return self.complete(observation, head(hidden)), state

    def _through(self, layers: list[nn.Module], observation: Tensor) -> Tensor:
        """The observation through these layers, the first ones."""
        if not layers:
            return self._seen(observation)
        first, *layers = layers
        assert isinstance(first, nn.Linear)
        features = self.inputs(observation).through(first.weight, first.bias)
        for layer in layers:
            features = layer(features)
        return features

    def inputs(self, observation: Tensor) -> Numbers | Ones:
        """What the first layer gets."""
        if self.observations.categories and self.observations.features >= _MANY_CATEGORIES:
            return Ones(self.observations.indices(observation), self.observations.features)
        return Numbers(self._seen(observation))

    def _seen(self, observation: Tensor) -> Tensor:
        """The same as numbers: what images were turned into, then the other features."""
        features = self.features(observation)
        if self.convolutions:
            seen = [layer(features) for layer in self._convolutions()]
            features = torch.cat([*seen, features[:, self._flat]], -1)
        return features

    def _convolutions(self) -> list[Convolution]:
        return [layer for layer in self.convolutions if isinstance(layer, Convolution)]


class ArrayForward:
    """The same function on NumPy arrays: ``network(torch.from_numpy(x)).numpy()`` up to rounding.

    A rollout calls the network once a step with a few rows, where NumPy is three times as fast. The
    present weights are copied: make a new one after each update.
    """

    def __init__(self, network: Network, rows: int) -> None:
        self._features, self._forbidden = network.features, network.observations.forbidden
        linear = [layer for layer in network.layers if isinstance(layer, nn.Linear)]
        weights = [np.ascontiguousarray(layer.weight.detach().numpy().T) for layer in linear]
        biases = [layer.bias.detach().numpy().copy() for layer in linear]
        sizes, dtype = [len(bias) for bias in biases], biases[0].dtype
        constants = None if network.constants is None else network.constants.detach().numpy()
        width = sizes[-1] + (0 if constants is None else len(constants))
        outputs = np.empty((rows, width), dtype)
        if constants is not None:
            outputs[:, sizes[-1] :] = constants
        buffers = [np.empty((rows, size), dtype) for size in sizes[:-1]]
        self._last = outputs[:, : sizes[-1]]
        self._layers = list(zip(weights, biases, [*buffers, self._last], strict=True))
        self._outputs = torch.from_numpy(outputs)
        relu = network.activation == "relu"
        self._activate = partial(np.maximum, 0) if relu else np.tanh

    def __call__(self, observation: Tensor) -> Tensor:
        """The outputs of each observation; the next call overwrites them."""
        values: np.ndarray[Any, Any] = self._features(observation).numpy()
        # As torch: the learner says so when numbers are no longer finite.
        with np.errstate(over="ignore", invalid="ignore"):
            for weight, bias, buffer in self._layers:
                np.matmul(values, weight, out=buffer)
                values = np.add(buffer, bias, out=buffer)
                if buffer is not self._last:
                    self._activate(buffer, out=buffer)
        forbidden = self._forbidden(observation)
        return self._outputs if forbidden is None else self._outputs + forbidden

    @staticmethod
    def pays_off(network: nn.Module, rows: int) -> TypeGuard[Network]:
        """Whether it is the faster one: small layers, for which BLAS does not start threads."""
        if not isinstance(network, Network) or network.convolutions or network.memory is not None:
            return False
        return all(
            rows * layer.in_features * layer.out_features <= _SMALL_PRODUCT
            for layer in network.layers
            if isinstance(layer, nn.Linear)
        )


class RecurrentForward:
    """A recurrent network from the first step of an episode on; it keeps the states."""

    def __init__(self, network: Network, rows: int) -> None:
        self._network, self._state = network, network.start(rows)

    @torch.inference_mode()
    def __call__(self, observation: Tensor) -> Tensor:
        """The outputs of each observation, after all those of the calls before."""
        outputs, self._state = self._network.step(observation, self._state)
        return outputs


def is_recurrent(network: nn.Module) -> TypeGuard[Network]:
    """Whether an output depends on earlier observations of the episode."""
    return isinstance(network, Network) and network.memory is not None


def acting(network: nn.Module, rows: int) -> Callable[[Tensor], Tensor]:
    """The network as a rollout calls it: once for each step, ``rows`` episodes that begin now."""
    if is_recurrent(network):
        return RecurrentForward(network, rows)
    if ArrayForward.pays_off(network, rows):
        return ArrayForward(network, rows)
    forward: Callable[[Tensor], Tensor] = torch.inference_mode()(network.__call__)
    return forward


def outputs_of(network: nn.Module, observations: Tensor, episode: Tensor) -> Tensor:
    """The outputs ``[N, P]`` for an update, differentiable; ``episode`` as in `Memory.forward`."""
    outputs: Tensor = (
        network(observations, episode) if is_recurrent(network) else network(observations)
    )
    return outputs


# Features from which looking weights up beats multiplying them with one-hot rows.
_MANY_CATEGORIES = 128
# Multiplications in a matrix product up to which the BLAS of NumPy works in the calling thread.
_SMALL_PRODUCT = 64**3


def _linear(inputs: int, outputs: int, scale: float, generator: torch.Generator) -> nn.Linear:
    """A layer drawn from ``generator`` alone: torch's global generator is left as it is."""
    with torch.random.fork_rng(devices=()):  # quicker than skip_init, which loads a compiler
        layer = nn.Linear(inputs, outputs)
    with torch.no_grad():
        layer.weight.normal_(0, scale / inputs**0.5, generator=generator)
        layer.bias.zero_()
    return layer
