"""The distributions that tokens are drawn from: what samplers do to the logits of a policy."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from eligibility.errors import InvalidValueError


@dataclass(frozen=True)
class Behaviour:
    """What the tokens of the probe are drawn from.

    Attributes:
        source: "policy"; "old", the policy of some steps ago; or "rollout", an inference engine
            whose log-probabilities differ, much at some states, from the trainer's.
        temperature: Logits are divided by it.
        top_k: The number of most probable tokens that are kept; 0: all.
        top_p: Only the likeliest tokens that together have this probability.
        min_p: Only tokens with this share of the likeliest one's probability.
        repetition_penalty: Logits of tokens seen before are divided by it if positive, else
            multiplied.
    """

    source: str = "policy"
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0

    @property
    def on_policy(self) -> bool:
        """Whether the tokens are drawn from what ``log_probs`` scores."""
        return self == Behaviour()


def behaviour_named(name: str, temperature: float, vocabulary: int) -> Behaviour:
    """The behaviour of a name; what cuts tokens off cuts some in a vocabulary of this size.

    Raises:
        InvalidValueError: No such name, or a temperature that is not positive.
    """
    if not temperature > 0 or math.isinf(temperature):
        raise InvalidValueError(
            "`temperature`", f"{temperature}", "a positive number", "omit it to use 1.0"
        )
    settings = {  # of the sampler; generic ones, which change some states
        "policy": {},
        "old": {"source": "old"},
        "rollout": {"source": "rollout"},
        "top-k": {"top_k": vocabulary - 1},
        "top-p": {"top_p": 0.7},
        "min-p": {"min_p": 0.5},
        "repetition-penalty": {"repetition_penalty": 1.5},
    }
    if name not in settings:
        raise InvalidValueError(
            "`behaviour`", repr(name), f"one of {', '.join(settings)}", "pass one of these names"
        )
    return Behaviour(temperature=temperature, **settings[name])  # type: ignore[arg-type]  # of several types


def drawn_log_probs(logits: Tensor, seen: Tensor, behaviour: Behaviour) -> Tensor:
    """[..., V] log-probabilities of the draw, in the order in which samplers apply their steps.

    Repetition penalty, temperature, top-k, top-p, min-p; what is cut off has −inf.

    Args:
        logits: [..., V] of what is drawn from.
        seen: [..., V] booleans: which tokens precede the position.
        behaviour: The sampler's settings.

    References:
        Keskar et al. 2019 (penalty); Fan et al. 2018 (top-k); Holtzman et al. 2020 (top-p); Nguyen
        et al. 2025 (min-p).
    """
    penalty = behaviour.repetition_penalty
    punished = torch.where(logits > 0, logits / penalty, logits * penalty)
    z = torch.where(seen, punished, logits) / behaviour.temperature
    if behaviour.top_k:
        kth = z.topk(behaviour.top_k, dim=-1).values[..., -1:]
        z = z.masked_fill(z < kth, -math.inf)
    if behaviour.top_p < 1.0:
        ordered, order = z.softmax(-1).sort(dim=-1, descending=True)
        beyond = ordered.cumsum(-1) - ordered >= behaviour.top_p  # without the token itself
        z = z.masked_fill(torch.zeros_like(beyond).scatter(-1, order, beyond), -math.inf)
    if behaviour.min_p:
        probs = z.softmax(-1)
        z = z.masked_fill(probs < behaviour.min_p * probs.amax(-1, keepdim=True), -math.inf)
    return z.log_softmax(-1)
