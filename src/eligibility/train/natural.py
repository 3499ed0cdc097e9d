"""The natural gradient: the direction of steepest ascent where distance is the policy's change.

``x = (F + λ)⁻¹ g`` with the Fisher information ``F = E[e eᵀ]`` of the policy, averaged over the
states that were visited. F is never formed: at the outputs it is known in closed form, so that
``F v = 1/N Σ_n J_nᵀ F_n J_n v`` takes two passes through the network, and conjugate gradients solve
for x from such products.

References:
    Kakade 2001, "A natural policy gradient", NIPS 14; Schulman et al. 2015, "Trust region policy
    optimization", appendix C, for the conjugate gradients; Hestenes & Stiefel 1952.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from eligibility.train.jacobian import flatten, jacobian_of, unflatten
from eligibility.train.network import outputs_of
from eligibility.train.policies import Policy

# Steps that the Fisher information is averaged over: evenly spaced ones of a long rollout, or all
# steps of evenly spaced episodes.
_LARGEST_SAMPLE = 2048
# Of the line search: by how many times too much a step may move the policy, and how often it is
# halved. 1.5 is that of Schulman et al.'s own program.
_TOLERATED, _MOST_HALVINGS = 1.5, 10


def sample(alive: Tensor, *, whole_episodes: bool) -> Tensor:
    """Which of the steps ``alive`` ``[T, B]`` to average over: some thousand, or whole episodes."""
    steps = alive.nonzero()
    numbers = steps[:, 1] if whole_episodes else torch.arange(len(steps))
    taken = numbers % -(-len(steps) // _LARGEST_SAMPLE) == 0
    return torch.zeros_like(alive).masked_scatter(alive, taken)


class FisherInformation:
    """``v ↦ F v`` for the weights of a network, averaged over states ``[N]`` of some episodes."""

    def __init__(
        self, network: nn.Module, policy: Policy, observations: Tensor, episode: Tensor
    ) -> None:
        self._jacobian = jacobian_of(network, observations, episode)
        self.outputs = self._jacobian.outputs
        self._at_outputs = policy.fisher(self.outputs)

    def __call__(self, vector: Tensor) -> Tensor:
        """F v; v and the result are vectors of all weights."""
        with torch.no_grad():
            pushed = self._jacobian.push(vector)
            return self._jacobian.pull(self._at_outputs(pushed) / len(pushed))


def conjugate_gradient(
    product: Callable[[Tensor], Tensor], target: Tensor, iterations: int, tolerance: float
) -> Tensor:
    """x with ``product(x) = target``, positive definite; ``tolerance`` is relative."""
    solution, residual = torch.zeros_like(target), target.clone()
    direction, squared = residual.clone(), residual @ residual
    goal = squared * tolerance**2
    for _ in range(iterations):
        if squared <= goal:
            break
        image = product(direction)
        length = squared / (direction @ image)
        solution += length * direction
        residual -= length * image
        previous, squared = squared, residual @ residual
        direction = residual + squared / previous * direction
    return solution


def natural_step(
    network: nn.Module,
    policy: Policy,
    observations: Tensor,
    episode: Tensor,
    *,
    divergence: float,
    damping: float,
    line_search: bool = False,
    iterations: int = 10,
    tolerance: float = 1e-3,
) -> None:
    """Move the weights against their ``.grad``, in the policy's own metric.

    The direction is ``(F + λ)⁻¹ g``, the length such that ``½ Δᵀ (F + λ) Δ = divergence``, in nats:
    to second order the mean Kullback-Leibler divergence between the policies before and after is at
    most that. A gradient of 0 moves nothing, nor does a divergence of 0.

    Where a policy is all but certain the second order says little, and it may move by twenty times
    that. ``line_search`` halves the step until the divergence itself is at most 1.5 times as much.
    """
    parameters = list(network.parameters())
    gradient = flatten([torch.zeros_like(p) if p.grad is None else p.grad for p in parameters])
    if divergence == 0 or not gradient.any():
        return
    # Only its direction counts. Scaled by a power of 2, a saturated policy's is not 0 if squared.
    exponent = max(math.frexp(float(gradient.abs().max()))[1], -100)
    gradient = gradient * 2.0**-exponent
    fisher = FisherInformation(network, policy, observations, episode)
    direction = conjugate_gradient(
        lambda vector: fisher(vector) + damping * vector, gradient, iterations, tolerance
    )
    length = (2 * divergence / (direction @ gradient)).sqrt()  # Δᵀ (F + λ) Δ = 2 divergence
    before = [parameter.detach().clone() for parameter in parameters]
    parts = unflatten(direction, parameters)
    with torch.no_grad():
        for _ in range(_MOST_HALVINGS + 1):
            for parameter, old, part in zip(parameters, before, parts, strict=True):
                parameter.copy_(old - length * part)
            if not line_search:
                return
            outputs = outputs_of(network, observations, episode)
            moved = float(policy.divergence(fisher.outputs, outputs).mean())
            if moved <= _TOLERATED * divergence:
                return
            length = length / 2


def share_of_signal(norm: float, noise: float) -> float:
    """``1 − noise²/norm²``, at least 0: by how much to shorten a step along a noisy gradient.

    For an estimate ``ĝ = g + ε`` the multiple nearest to g is ``|g|²/(|g|² + E|ε|²)`` of it,
    Wiener's filter. A step of constant length walks at random where only noise is left. Noise that
    is unknown, NaN, shortens nothing.
    """
    if math.isnan(noise) or norm == 0:
        return 1.0
    return max(1 - (noise / norm) ** 2, 0.0)
