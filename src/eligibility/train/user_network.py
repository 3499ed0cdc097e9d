"""A network of the user's own in place of the default one, and which of the two it is."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from eligibility.errors import EligibilityError, InvalidTypeError, ShapeError
from eligibility.train.config import Config
from eligibility.train.network import Network, PolicyNetwork
from eligibility.train.observations import Observations
from eligibility.train.policies import Policy
from eligibility.train.seeding import Stream, derive

# A module, or a function (a class is one) that makes it from the number of outputs.
Body = nn.Module | Callable[[int], nn.Module]

_REMEDY = "see the docstring of eligibility.train.user_network.UserNetwork"


class UserNetwork(PolicyNetwork):
    """The user's module, between the encoding of observations and the policy.

    The module maps the observations of N steps, each row by itself, to float32 ``[N, outputs]``.
    They are tensors in the form of the observation space, N first:

    ==================  ====================================================================
    space               what the module gets
    ==================  ====================================================================
    ``Box``             float32 in the shape of the space; uint8 divided by 255
    ``Discrete``        int64 ``[N]``, counted from 0
    ``MultiDiscrete``   int64 in the shape of the space, counted from 0
    ``MultiBinary``     float32 in the shape of the space
    ``Dict``            a dict of these
    ``Tuple``           a tuple of these
    ==================  ====================================================================

    ``outputs`` is what the policy needs, see `eligibility.train.policies`, less what does not
    depend on the observation: for a ``Box`` of k numbers the k means, while the k ln σ are kept
    here. Masks of the actions are added behind the module; running normalisation, if asked for,
    goes before it.

    Args:
        observations: How observations are kept and encoded.
        policy: What the outputs mean.
        body: The module itself, or a function that makes it from the number of outputs. The
            function is called with torch's global generator seeded, and left as it was.
        seed: For that.
        normalize: Normalise the numbers among the observations.

    Raises:
        InvalidTypeError: ``body`` is neither.
        ShapeError, EligibilityError: It does not map observations to outputs.
    """

    def __init__(
        self,
        observations: Observations,
        policy: Policy,
        body: Body,
        seed: int,
        *,
        normalize: bool = False,
    ) -> None:
        super().__init__(observations, policy, observations.numbers, normalize)
        outputs = policy.size - policy.constants
        self.body = _make(body, outputs, seed)
        self._check(outputs)

    def forward(self, observation: Tensor) -> Tensor:
        """The policy's outputs ``[N, P]`` for observations as kept, ``[N, *shape]``."""
        return self.complete(observation, self.body(self._arranged(observation)))

    def _arranged(self, observation: Tensor) -> Any:
        return self.observations.arrange(observation, self.features(observation))

    def _check(self, outputs: int) -> None:
        """Try it on two observations of nothing."""
        blank = torch.from_numpy(self.observations.blank(2))
        try:
            with torch.no_grad():
                got = self.body(self._arranged(blank))
        except Exception as error:  # the module is anybody's code
            raise EligibilityError(
                "the network",
                f"{type(error).__name__}: {error}",
                "no exception for two observations",
                _REMEDY,
            ) from error
        if not isinstance(got, Tensor) or not got.is_floating_point():
            kind = f"a tensor of {got.dtype}" if isinstance(got, Tensor) else type(got).__name__
            raise InvalidTypeError("the network's outputs", kind, "a float32 tensor", _REMEDY)
        if got.shape != (2, outputs):
            raise ShapeError(
                "the network's outputs for two observations",
                f"shape {list(got.shape)}",
                f"[2, {outputs}]",
                _REMEDY,
            )


def _make(body: Body, outputs: int, seed: int) -> nn.Module:
    if isinstance(body, nn.Module):
        return body
    if not callable(body):
        raise InvalidTypeError(
            "`network`",
            type(body).__name__,
            "a torch.nn.Module, or a function that builds one from the number of outputs",
            _REMEDY,
        )
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        made = body(outputs)
    if not isinstance(made, nn.Module):
        raise InvalidTypeError(
            "what `network` returned", type(made).__name__, "a torch.nn.Module", _REMEDY
        )
    return made


def network_for(
    observations: Observations, policy: Policy, body: Body | None, config: Config
) -> Network | UserNetwork:
    """The default network with the config's options, or the user's own ``body``."""
    seed, generator = derive(config.seed, Stream.INITIALISATION)
    normalize = config.normalize_observations
    network: Network | UserNetwork
    if body is not None:
        config.check_unused_by_own_network()
        network = UserNetwork(observations, policy, body, seed, normalize=normalize)
    else:
        network = Network(
            observations,
            config.hidden_sizes,
            policy,
            generator,
            activation=config.activation,
            recurrent=config.recurrent,
            convolution=config.convolution,
            normalize=normalize,
        )
    if network.constants is not None:  # ln σ
        nn.init.constant_(network.constants, math.log(config.initial_deviation))
    return network
