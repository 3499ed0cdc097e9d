"""Every option of a training run, once: the API's keywords, the command line's options, the docs.

This file imports neither torch nor numpy, so that ``eligibility train --help`` is instant.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import Any

from eligibility.errors import InvalidValueError
from eligibility.train.baseline_names import OPTIONS, BaselineNames, options_of
from eligibility.train.domains import (
    LARGEST,
    Choice,
    Domain,
    Flag,
    Keywords,
    Maybe,
    Number,
    Several,
    Text,
    Whole,
    suggestion,
)
from eligibility.train.presets import preset

CREDITS = ("reward-to-go", "whole-return", "next-reward")
SCHEDULES = ("constant", "linear")
ACTIVATIONS = ("tanh", "relu")
AVERAGES = ("steps", "episodes")
# Kinds of recurrent layers, and how many matrices each has where a plain one has one.
RECURRENT = {"none": 0, "gru": 3, "lstm": 4}

_ENV = Text("the id of an environment", "pass a name: CartPole-v1")
_SHARE = Number(0, 1, "a number in [0, 1]")
_NOT_NEGATIVE = Number(0, LARGEST, "a finite number >= 0")
_POSITIVE = Number(0, LARGEST, "a finite number > 0", above=True)
# A file that asks for more is answered before memory is taken for it.
_MOST_ENVIRONMENTS = _WIDEST = 2**16
_MOST_LAYERS, _MOST_WEIGHTS = 100, 2**28
_WIDTHS = Several(int, f"positive widths up to {_WIDEST}, such as 64,64", largest=_WIDEST)
_SIDE_BY_SIDE = Whole(1, _MOST_ENVIRONMENTS)


def _option(default: Any, domain: Domain, help: str) -> Any:
    return field(default=default, metadata={"domain": domain, "help": help})


def _flag(default: bool, help: str) -> Any:
    return _option(default, Flag(), help)


@dataclass(frozen=True)
class Config:
    """How to train. Everything but ``env`` has a default; each is checked on construction."""

    env: str = field(
        metadata={"domain": _ENV, "help": "Id of a Gymnasium environment, such as CartPole-v1."}
    )
    env_kwargs: Mapping[str, Any] | None = _option(
        None,
        Maybe(Keywords()),
        "Keywords to make the environment with, such as is_slippery=false,map_name=8x8.",
    )
    seed: int = _option(0, Whole(0, 2**128), "Same seed, same run, bit for bit.")
    steps: int = _option(
        1_000_000, Whole(1), "Stop after the rollout that reaches this many steps."
    )
    stop_at: float | None = _option(
        None,
        Maybe(Number(-math.inf, math.inf, "a return")),
        "Stop when the mean of the last 100 training episodes reaches this return. "
        "Default: the environment's own reward threshold, if it has one; inf: never.",
    )
    environments: int = _option(
        64,
        _SIDE_BY_SIDE,
        "Number of parallel environments; each update uses one episode from each.",
    )
    shards: int = _option(
        1,
        _SIDE_BY_SIDE,
        "Number of groups of environments, each with its own random numbers, divided among the "
        "processes of torchrun; one per process if omitted. The run depends on the number of "
        "shards, not on the number of processes.",
    )
    max_episode_steps: int | None = _option(
        None,
        Maybe(Whole(1)),
        "Truncate episodes after this many steps. Default: the environment's own limit, or 1000.",
    )
    discount: float = _option(0.99, _SHARE, "γ in [0, 1] of the rewards-to-go.")
    credit: str = _option(
        "reward-to-go",
        Choice(CREDITS),
        "The credit of an action: reward-to-go; whole-return, which adds the noise of earlier "
        "rewards; or next-reward, the first nonzero reward, discounted, for games that continue "
        "after each point.",
    )
    discount_updates: bool = _flag(
        False,
        "Also weight the update at step t by γ^t, which gives the gradient of the discounted "
        "return itself. Otherwise late steps count as much as early ones, as is common practice.",
    )
    baseline: str = _option(
        "time-dependent-leave-one-out",
        BaselineNames(),
        f"One of {', '.join(BaselineNames.names)}; or several joined by +, subtracted one after "
        "another.",
    )
    baseline_rate: float = _option(
        0.1,
        Number(0, 1, "a number in (0, 1]", above=True),
        "Weight of the newest rollout in the averages of "
        f"{' and '.join(option.name for option in OPTIONS.values() if option.averages)}.",
    )
    gae_lambda: float = _option(
        1.0,
        _SHARE,
        "λ in [0, 1] of generalised advantages; below 1 only with the baseline state-value.",
    )
    bootstrap: bool = _flag(
        False,
        "After a truncation, add the value that the state-value baseline predicts for the rest of "
        "the episode. Otherwise the time limit is part of the task.",
    )
    value_knows_time: bool = _flag(
        True,
        "Let the state-value baseline know the time within the episode. Without, a policy that has "
        "met no success yet is drawn to the states that it reaches late. For a Discrete "
        "observation the baseline is a table, one mean return per state, which never knows it.",
    )
    normalize: bool = _flag(True, "Divide the advantages of an update by their standard deviation.")
    normalize_returns: bool = _flag(
        False,
        "Divide the advantages by the running standard deviation of the returns over all updates "
        "so far, not by their own (use --no-normalize). Adam's steps then vary with the update.",
    )
    average: str = _option(
        "steps",
        Choice(AVERAGES),
        "Divide the sum over all steps of an update by the number of steps, as is common "
        "practice, or by the number of episodes, which is unbiased because it does not depend on "
        "the policy.",
    )
    entropy_coef: float = _option(
        0.0, _NOT_NEGATIVE, "Weight of the policy's entropy in the objective."
    )
    entropy_schedule: str = _option(
        "constant",
        Choice(SCHEDULES),
        "How entropy_coef changes during training: constant, or linear decay to 0.",
    )
    learning_rate: float = _option(
        0.005, _POSITIVE, "Step size of Adam; not used with natural_gradient."
    )
    schedule: str = _option(
        "constant",
        Choice(SCHEDULES),
        "How the step size, of Adam or of the natural gradient, changes during training: "
        "constant, or linear decay to 0.",
    )
    max_gradient_norm: float | None = _option(
        None,
        Maybe(_POSITIVE),
        "Clip the gradient norm to this value before Adam. Default: no clipping.",
    )
    natural_gradient: float = _option(
        0.0,
        _NOT_NEGATIVE,
        "Follow the natural gradient instead of Adam. Each step moves the policy by this "
        "Kullback-Leibler divergence in nats, such as 0.01; 0 means Adam.",
    )
    damping: float = _option(
        0.01,
        _POSITIVE,
        "Added to the diagonal of the Fisher information for the natural gradient.",
    )
    shorten_noisy_steps: bool = _flag(
        False,
        "Shorten each natural-gradient step by the fraction of its squared norm that is noise, "
        "estimated from two halves of the episodes: steadier where rewards come at every step, "
        "slower where they are rare.",
    )
    line_search: bool = _flag(
        False,
        "Halve each natural-gradient step until the policy's divergence, measured at the visited "
        "states, is at most 1.5 times the intended one. A nearly deterministic policy moves "
        "farther than its Fisher information predicts.",
    )
    hidden_sizes: tuple[int, ...] = _option(
        (64, 64), _WIDTHS, "Widths of the hidden layers, as in 64,64."
    )
    activation: str = _option(
        "tanh", Choice(ACTIVATIONS), f"Activation of the hidden layers: {' or '.join(ACTIVATIONS)}."
    )
    recurrent: str = _option(
        "none",
        Choice(tuple(RECURRENT)),
        "Make the last hidden layer recurrent: gru or lstm. It remembers the episode so far, and "
        "an update backpropagates through whole episodes. With none, an action depends only on "
        "the current observation.",
    )
    squash_actions: bool = _flag(
        False,
        "Sample Box actions as the tanh of a normal, so they stay within the bounds. Otherwise "
        "normal samples are clipped on their way to the environment.",
    )
    initial_deviation: float = _option(
        1.0,
        _POSITIVE,
        "Initial standard deviation of Box actions, in units of half the range if the space is "
        "bounded. Training changes it.",
    )
    mask_actions: bool = _flag(
        True,
        "Never take actions that the environment forbids, whether by its info's action_mask, its "
        "method action_masks(), or the entry action_mask of a Dict observation.",
    )
    observation_keys: tuple[str, ...] | None = _option(
        None,
        Maybe(Several(str, "names such as image,direction", empty=False)),
        "Entries of a Dict observation that the network sees. Default: all.",
    )
    normalize_observations: bool = _flag(
        False,
        "Standardise each observed number to mean 0 and variance 1 over the training so far.",
    )
    scale_observations: bool = _flag(
        False,
        "Centre each bounded floating-point number on the middle of its range and divide it by "
        "range/√12, so that a uniform one has variance 1.",
    )
    convolution: bool = _flag(
        True, "Pass images through convolutional layers; otherwise flatten them."
    )
    threads: int = _option(
        1, Whole(1, 1024), "Number of torch threads for training; 1 suits small networks."
    )

    def __post_init__(self) -> None:
        for option in fields(self):
            value = option.metadata["domain"](option.name, getattr(self, option.name))
            object.__setattr__(self, option.name, value)
        self._check_size()
        self._check_combinations()

    @property
    def is_recurrent(self) -> bool:
        """Whether the policy remembers earlier observations of an episode."""
        return self.recurrent != "none"

    def _check_size(self) -> None:
        """Refuse a network that is larger than any that this trains, before it is made."""
        sizes = self.hidden_sizes
        weights = sum(a * b for a, b in pairwise(sizes[:-1] if self.is_recurrent else sizes))
        if self.is_recurrent:  # the last layer sees itself as well
            weights += RECURRENT[self.recurrent] * sum(sizes[-1] * width for width in sizes[-2:])
        if len(self.hidden_sizes) > _MOST_LAYERS or weights > _MOST_WEIGHTS:
            raise InvalidValueError(
                "`hidden_sizes`",
                f"{len(self.hidden_sizes)} layers with {weights:,} weights between them",
                f"at most {_MOST_LAYERS} layers and {_MOST_WEIGHTS:,} weights",
                "choose smaller ones, or pass your own network",
            )

    def _check_combinations(self) -> None:
        """Refuse options that would do nothing, or make no sense, together."""
        if self.environments % self.shards:
            raise InvalidValueError(
                "`shards`",
                str(self.shards),
                f"a divisor of the {self.environments} environments",
                "change one of the two, so that every shard has the same number",
            )
        if self.is_recurrent and not self.hidden_sizes:
            raise InvalidValueError(
                "`recurrent`",
                self.recurrent,
                "none, because a network without hidden layers has no layer to make recurrent",
                "add --hidden-sizes 64",
            )
        baselines = options_of(self.baseline)
        for baseline in baselines:
            if self.environments < baseline.least_episodes:
                raise InvalidValueError(
                    "`environments`",
                    str(self.environments),
                    f"at least {baseline.least_episodes} for the baseline {baseline.name}",
                    "choose baseline moving-average or none for a single environment",
                )
        if self.credit != "reward-to-go" and self.discount_updates:
            raise InvalidValueError(
                "`discount_updates`",
                "True",
                f"False with credit {self.credit}",
                "the discounted whole return already contains γ^t"
                if self.credit == "whole-return"
                else "the discount restarts after each reward",
            )
        values = any(baseline.predicts for baseline in baselines)
        predicted = values and self.credit == "reward-to-go"
        if (self.gae_lambda < 1 or self.bootstrap) and not predicted:
            raise InvalidValueError(
                "`bootstrap`" if self.bootstrap else "`gae_lambda`",
                str(self.bootstrap or self.gae_lambda),
                "the baseline state-value and credit reward-to-go with it",
                "add --baseline state-value",
            )
        self._check_idle("value_knows_time", values, "--baseline state-value")
        self._check_idle("normalize_returns", not self.normalize, "--no-normalize")
        self._check_idle("entropy_schedule", self.entropy_coef > 0, "--entropy-coef 0.01")
        averaging = any(baseline.averages for baseline in baselines)
        self._check_idle("baseline_rate", averaging, "--baseline moving-average")
        for name in ("damping", "shorten_noisy_steps", "line_search"):
            self._check_idle(name, self.natural_gradient > 0, "--natural-gradient 0.01")
        self._check_idle("max_gradient_norm", self.natural_gradient == 0, "--natural-gradient 0")

    def check_unused_by_own_network(self) -> None:
        """Refuse options of the default network together with a network of the user's own."""
        usual = preset(self.env)
        for name in ("hidden_sizes", "activation", "recurrent", "convolution"):
            value = getattr(self, name)
            if value not in (getattr(Config, name), usual.get(name)):
                raise InvalidValueError(
                    f"`{name}`",
                    str(value),
                    "no value when you pass your own network",
                    "omit it, because your own network sees one step at a time"
                    if name == "recurrent"
                    else "omit it, or build it into the network",
                )

    def _check_idle(self, name: str, used: bool, remedy: str) -> None:
        """Refuse a value that would do nothing."""
        if not used and getattr(self, name) != getattr(Config, name):  # the default
            raise InvalidValueError(
                f"`{name}`",
                str(getattr(self, name)),
                "no value, because nothing uses it",
                f"add {remedy}, or omit it",
            )

    @classmethod
    def from_options(cls, env: str, options: dict[str, Any]) -> Config:
        """A config of keywords that a user wrote, over the environment's preset and the defaults.

        Raises:
            InvalidValueError: An unknown keyword, answered with a suggestion, or a wrong value.
        """
        cls.check_known(options)
        return cls(env, **{**preset(env), **options})

    @classmethod
    def check_known(cls, names: Iterable[str]) -> None:
        """Raise for the first that no option has."""
        known = [field.name for field in fields(cls) if field.name != "env"]
        for name in names:
            if name not in known:
                raise InvalidValueError(
                    f"`{name}`", "an unknown option", ", ".join(known), suggestion(name, known)
                )


def as_written(value: Any) -> str:
    """A value as one would write it on the command line."""
    if isinstance(value, dict):
        return json.dumps(value)
    return (",".join(map(str, value)) or '""') if isinstance(value, tuple) else str(value)
