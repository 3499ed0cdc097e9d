"""Products with the Jacobian J of a network's outputs in its weights: ``J v`` and ``Jᵀ c``.

J is never formed. Through linear layers both products are the chain rule written out, with what
each layer has seen computed once: a fifth of what automatic differentiation takes, which has to
differentiate its own backward pass for ``J v``.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from eligibility.train.network import Network, is_recurrent, outputs_of
from eligibility.train.network_layers import Numbers


def jacobian_of(
    network: nn.Module, observations: Tensor, episode: Tensor
) -> LayerJacobian | AutogradJacobian:
    """That of outputs ``[N, P]`` in W weights, as is quickest; ``episode`` as in `outputs_of`."""
    if isinstance(network, Network) and not network.convolutions and not is_recurrent(network):
        return LayerJacobian(network, observations)
    return AutogradJacobian(network, observations, episode)


class LayerJacobian:
    """The Jacobian of a `Network` with only linear layers."""

    @torch.no_grad()
    def __init__(self, network: Network, observations: Tensor) -> None:
        self._parameters = list(network.parameters())
        self._constants = 0 if network.constants is None else len(network.constants)
        self._inputs = [network.inputs(observations)]
        self._weights, self._slopes = list[Tensor](), list[Tensor]()
        for layer in network.layers:
            if isinstance(layer, nn.Linear):
                self._weights.append(layer.weight.detach())
                values = self._inputs[-1].through(layer.weight, layer.bias)
            else:
                values = layer(values)
                relu = network.activation == "relu"
                self._slopes.append((values > 0).to(values) if relu else 1 - values.square())
                self._inputs.append(Numbers(values))
        self.outputs = network.complete(observations, values)

    def push(self, vector: Tensor) -> Tensor:
        """``J v``."""
        parts = unflatten(vector, self._parameters)
        constants = [parts.pop(0)] if self._constants else []
        changes = zip(self._inputs, parts[::2], parts[1::2], strict=True)
        pushed = torch.empty(0)
        for number, (inputs, weight, bias) in enumerate(changes):
            below = pushed
            pushed = inputs.through(weight, bias)
            if number:
                pushed.addmm_(below * self._slopes[number - 1], self._weights[number].T)
        return torch.cat([pushed, *(part.expand(len(pushed), -1) for part in constants)], -1)

    def pull(self, cotangent: Tensor) -> Tensor:
        """``Jᵀ c``."""
        width = cotangent.shape[-1] - self._constants
        parts = [cotangent[:, width:].sum(0)] if self._constants else []
        layers, rest = list[Tensor](), cotangent[:, :width]
        for number in reversed(range(len(self._inputs))):
            layers = [self._inputs[number].back(rest), rest.sum(0), *layers]
            if number:
                rest = (rest @ self._weights[number]) * self._slopes[number - 1]
        return flatten([*parts, *layers])


class AutogradJacobian:
    """The Jacobian of any module, by differentiating its backward pass; as `LayerJacobian`."""

    def __init__(self, network: nn.Module, observations: Tensor, episode: Tensor) -> None:
        self._parameters = list(network.parameters())
        with torch.enable_grad():
            self._outputs = outputs_of(network, observations, episode)
            # Linear in u, so that its derivative in u along v is J v.
            self._u = torch.zeros_like(self._outputs, requires_grad=True)
            self._pulled = torch.autograd.grad(
                self._outputs, self._parameters, self._u, create_graph=True, materialize_grads=True
            )
        self.outputs = self._outputs.detach()

    def push(self, vector: Tensor) -> Tensor:
        parts = unflatten(vector, self._parameters)
        (pushed,) = torch.autograd.grad(self._pulled, self._u, parts, retain_graph=True)
        return pushed

    def pull(self, cotangent: Tensor) -> Tensor:
        pulled = torch.autograd.grad(
            self._outputs, self._parameters, cotangent, retain_graph=True, materialize_grads=True
        )
        return flatten(pulled)


def flatten(tensors: Sequence[Tensor]) -> Tensor:
    """All numbers in one row."""
    return torch.cat([tensor.flatten() for tensor in tensors])


def unflatten(vector: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """The numbers in tensors of these shapes."""
    parts = torch.split(vector, [tensor.numel() for tensor in like])
    return [part.view_as(tensor) for part, tensor in zip(parts, like, strict=True)]
