"""REINFORCE: collect whole episodes, credit each action with what followed, ascend."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.utils import clip_grad_norm_

from eligibility.errors import InvalidValueError
from eligibility.scalars import check_limit
from eligibility.train import saving
from eligibility.train.adam import Adam
from eligibility.train.baseline_names import options_of
from eligibility.train.callbacks import Callbacks, Listener
from eligibility.train.config import Config
from eligibility.train.distributed import current_processes
from eligibility.train.environment_sources import environment_source
from eligibility.train.environments import reward_threshold
from eligibility.train.evaluation import Evaluation, play, summarize
from eligibility.train.gradient import PolicyGradient, diagnose
from eligibility.train.natural import natural_step, sample, share_of_signal
from eligibility.train.observations.masked import MaskedObservations
from eligibility.train.policy_spaces import interface
from eligibility.train.prediction import Predictor
from eligibility.train.progress import WINDOW, Progress
from eligibility.train.rollout import Collector, Rollout
from eligibility.train.seeding import Stream, derive
from eligibility.train.shards import Shards
from eligibility.train.statistics import Array
from eligibility.train.user_network import Body, network_for

if TYPE_CHECKING:
    from eligibility.train.environment_sources import EnvironmentLike


class Reinforce:
    """REINFORCE on a Gymnasium environment, with the habits of Stable-Baselines3.

    Args:
        env: The id of a Gymnasium environment, a function (a class is one) that makes one, one to
            make copies of, or a vector environment in any autoreset mode; with any actions and
            observations but text, graphs and sequences.
        network: A ``torch.nn.Module`` in place of the default network, or a function (a class is
            one) that makes it from the number of outputs; see
            `eligibility.train.user_network.UserNetwork` for what it maps.
        **options: The fields of `eligibility.train.config.Config`, such as ``seed=1``.

    Attributes:
        config: The options, as a frozen dataclass.
        source: Where the environments come from.
        shards: Those that this process plays, and the rollouts they give.
        network: The policy's network, a ``torch.nn.Module``.
        optimizer: What turns its gradients into steps, a ``torch.optim.Optimizer``.
        gradient: What computes them from a rollout, with the estimator that the config names.
        recent: The returns of the last 100 finished episodes.
        progress: Where training stands.

    Raises:
        InvalidValueError, InvalidTypeError: An unknown environment, space or option.

    Example:
        >>> model = Reinforce("CartPole-v1", seed=1).learn(total_steps=20_000)
        >>> model.progress.mean_return > 22   # a policy that does not learn stays at 22
        True

    References:
        Williams 1992, Machine Learning 8:229-256, §5; the baseline: `eligibility.LeaveOneOut`.
    """

    def __init__(
        self, env: EnvironmentLike, *, network: Body | None = None, **options: Any
    ) -> None:
        self._processes = current_processes()
        self.source = environment_source(env)
        # Unless it is said how many shards there are: one for each process.
        options = self.source.options({"shards": self._processes.size, **options})
        self.config = config = Config.from_options(self.source.name, options)
        self.shards = Shards(self.source, config, self._processes)
        observations, policy = self.shards.observations, self.shards.policy
        self.network = network_for(observations, policy, network, config)
        generator = derive(config.seed, Stream.PREDICTION)[1]
        self._predictor = Predictor(self.network, policy, observations, generator)
        self.optimizer = Adam(self.network.parameters(), lr=config.learning_rate)
        self.gradient = PolicyGradient(config, self.network, policy, observations, self._processes)
        self.recent: deque[float] = deque(maxlen=WINDOW)
        self.progress = Progress()

    @property
    def leads(self) -> bool:
        """Whether this process, of those that train together, is the one that keeps the record."""
        return self._processes.rank == 0

    @property
    def stop_at(self) -> float:
        """The mean return at which training stops; inf: never."""
        if self.config.stop_at is not None:
            return self.config.stop_at
        threshold = reward_threshold(self.shards.vector)
        return math.inf if threshold is None else threshold

    @property
    def horizon(self) -> int:
        """The number of steps after which an episode is cut."""
        return self.shards.horizon

    def learn(
        self,
        total_steps: int | None = None,
        callback: Listener | Iterable[Listener] | None = None,
        *,
        max_seconds: float = math.inf,
    ) -> Reinforce:
        """Train until solved, or until a limit is reached; a second call goes on from there.

        Args:
            total_steps: Environment steps in all; default: the config's ``steps``. The rollout
                that reaches them is finished and learned from; one rollout is an episode of each
                environment, so that a few thousand steps more are usual. Where one alone may take
                more than all, the logger ``eligibility`` says so beforehand.
            max_seconds: Seconds of training in all, those before a resumption included. Where
                they end depends on the machine; up to there the run is the same, bit for bit.
            callback: A function that is called with the `Progress` after each rollout and ends the
                training by returning False; or a `Callback`, which also hears of the start and
                the end; or a list of these.

        Returns:
            The model itself.

        Raises:
            EligibilityError: The environment failed, or numbers are not finite. The weights are
                those of the last complete update.
        """
        config = self.config
        limit = config.steps if total_steps is None else total_steps
        check_limit(limit, "total_steps")
        if max_seconds != math.inf:
            check_limit(max_seconds, "max_seconds")
        callbacks = Callbacks(callback)
        self._announce(limit)
        self.shards.prepare()  # not a part of the time of training
        fitted = any(baseline.predicts for baseline in options_of(config.baseline))
        all_observe = fitted or config.normalize_observations  # what every process has observed
        with callbacks.attending(self), _threads(config.threads):
            before, start = self.progress.training_seconds, time.perf_counter()
            while self.progress.steps < limit and not self.progress.solved:
                number = self.progress.episodes // config.environments
                remaining = 1 - self.progress.steps / limit
                rollout = self.shards.collect(self.network, number)
                whole = self._processes.gather(rollout, with_observations=all_observe)
                recent = deque([*self.recent, *whole.episode_returns], maxlen=WINDOW)
                counted = self.progress.after(whole.episode_returns, whole.steps, recent)
                progress = self.judged(counted, recent)
                if not progress.solved:
                    progress = self._differentiate(rollout, whole, progress, remaining)
                    self._step(rollout, whole, progress, remaining)
                    if config.normalize_observations:  # after the weights: on-policy throughout
                        self.network.observe(whole.observations[whole.alive])
                    progress = replace(progress, updates=progress.updates + 1)
                seconds = before + time.perf_counter() - start
                progress = replace(progress, training_seconds=seconds)
                if progress.solved:  # for the record only: the weights that did it stay
                    progress = self._differentiate(rollout, whole, progress, remaining)
                self.recent, self.progress = recent, progress
                stopped = not callbacks.rollout_ended(progress) or seconds >= max_seconds
                if self._processes.any(stopped):
                    break
        return self

    def _announce(self, limit: int) -> None:
        """Say beforehand that training will take more steps than it was asked to."""
        number = self.config.environments
        most = number * self.horizon
        if self.leads and self.progress.steps < limit < most:
            logging.getLogger("eligibility").warning(
                f"note: an update takes one episode from each of the {number} environments, up to "
                f"{most:,} steps, more than the {limit:,} of this training; fewer environments "
                "make smaller updates"
            )

    def _step(self, rollout: Rollout, whole: Rollout, progress: Progress, remaining: float) -> None:
        """Move the weights by their ``.grad``, whose norm and noise ``progress`` has.

        ``remaining`` is the share of the training that was still to come when the rollout began.
        """
        config = self.config
        length = remaining if config.schedule == "linear" else 1.0
        if config.natural_gradient == 0:
            if config.max_gradient_norm is not None:
                clip_grad_norm_(self.network.parameters(), config.max_gradient_norm)
            self.optimizer.param_groups[0]["lr"] = config.learning_rate * length
            self.optimizer.step()
            return
        if config.shorten_noisy_steps:
            length *= share_of_signal(progress.gradient_norm, progress.gradient_noise)
        some = sample(whole.alive, whole_episodes=config.is_recurrent)
        natural_step(
            self.network,
            self.shards.policy,
            self._processes.gather_steps(rollout.observations, some),
            some.nonzero()[:, 1],
            divergence=config.natural_gradient * length**2,  # it is ½ Δᵀ F Δ
            damping=config.damping,
            line_search=config.line_search,
        )

    def judged(self, progress: Progress, recent: deque[float]) -> Progress:
        """The same progress, with the judgement whether it is enough for `stop_at`."""
        enough = len(recent) == WINDOW and progress.mean_return >= self.stop_at
        return replace(progress, solved=enough)

    def _differentiate(
        self, rollout: Rollout, whole: Rollout, progress: Progress, remaining: float
    ) -> Progress:
        """Fill the weights' ``.grad`` with the descent direction of this rollout."""
        found = self.gradient(rollout, whole, remaining, progress)
        if not math.isfinite(found.gradient_norm):
            raise InvalidValueError(
                f"the policy gradient of update {progress.updates}",
                f"a norm of {found.gradient_norm}",
                "a finite number",
                "lower the learning rate; the policy trained so far is kept",
            )
        return replace(found, warning=diagnose(found, self.shards.policy.largest_entropy))

    def predict(
        self,
        observation: Any,
        deterministic: bool = True,
        action_masks: Any = None,
        *,
        state: Any = None,
        episode_start: Any = None,
    ) -> Any:
        """The action for one observation, or for a batch of them.

        Args:
            observation: An observation from the environment's space, or several along a first axis.
            deterministic: The most probable action; else one drawn from the policy.
            action_masks: What the environment allows, as it says it; one for each observation.
                None: everything, or what the observation itself says.
            state: For a recurrent policy, its memory as returned by the last call. None:
                nothing yet.
            episode_start: For a recurrent policy, whether an episode begins with the observation,
                one for each; its state is then forgotten. None: with none of them.

        Returns:
            The action, or an array of them, as the environment takes it. From a recurrent policy a
            pair: that, and the state for the next call, ``[state]`` or ``[N, state]``.

        Raises:
            EligibilityError: The observation is not of the environment's observation space, the
                masks are not of its action space, or the state is not one of this policy.
        """
        return self._predictor(observation, deterministic, action_masks, state, episode_start)

    def evaluate(
        self, episodes: int = 100, seed: int | None = None, deterministic: bool = True
    ) -> Evaluation:
        """Play fresh episodes, with the most probable actions unless told otherwise.

        Args:
            episodes: Their number, all played side by side.
            seed: Seed of the episodes; default: the config's. They differ from the training
                episodes.
            deterministic: The most probable actions; else drawn from the policy.

        Returns:
            Mean, interquartile mean, spread and confidence intervals of the undiscounted return.
        """
        seed = self.config.seed if seed is None else seed
        return summarize(self.play(episodes, seed, deterministic)[None], seed)

    def play(
        self, episodes: int = 100, seed: int | None = None, deterministic: bool = True
    ) -> Array:
        """The undiscounted return of each of the episodes that `evaluate` summarises."""
        seed = self.config.seed if seed is None else seed
        made = interface(self.source.make(episodes, self.config.env_kwargs), self.config)
        try:
            collector = Collector(made, self.horizon)
            return play(collector, self.network, seed, deterministic, episodes)
        finally:
            self.source.close(made.vector)

    def set_env(self, env: EnvironmentLike, env_kwargs: Mapping[str, Any] | None = None) -> None:
        """Go on in another environment of the same spaces: what was learned stays, counts do not.

        The next `learn` counts its steps, and the returns by which it stops, from 0.

        Raises:
            InvalidValueError: Its spaces, or the number of its environments, are others.
        """
        made = environment_source(env)
        made.options({"shards": self.config.shards, "environments": self.config.environments})
        config = replace(self.config, env=made.name, env_kwargs=env_kwargs)
        shards = Shards(made, config, self._processes)
        old, new = (_seen_and_done(one) for one in (self.shards, shards))
        if old != new:
            raise InvalidValueError("`env`", f"one with {new}", old, "create a new model for it")
        self.source, self.shards, self.config = made, shards, config
        self.recent.clear()
        self.progress = Progress()

    def save(self, path: str | Path) -> Path:
        """Write a checkpoint: config, weights, optimizer, baseline and counters, in one file.

        Raises:
            OutputError: It cannot be written. An older file at ``path`` is then as it was.
        """
        return saving.save(self, path)

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        env: EnvironmentLike | None = None,
        network: Body | None = None,
        allow_modules: Collection[str] = (),
        **changes: Any,
    ) -> Reinforce:
        """The model of a checkpoint file, or of the run folder that holds one.

        Training goes on from there bit for bit as if it had never stopped: a rollout depends on
        the seed, its number and the weights, and on nothing else.

        Args:
            path: The file or the folder.
            env: What the model was made with, if that was not an id: a checkpoint has no code. Or
                another environment, of the same spaces, to play or to go on in.
            network: What the model was made with, if it was not the default one.
            allow_modules: Modules that the checkpoint may name, as in ``package:Name-v0``, for us
                to import: importing runs their code. None are unless they stand here or in ``env``.
            **changes: New values of ``steps``, ``stop_at``, ``threads``, ``learning_rate``,
                ``natural_gradient`` or ``env_kwargs``.

        Raises:
            InvalidValueError: There is none, it is damaged or claims what cannot be, it names a
                module that is not allowed, or another option is to be changed.
        """
        saved = saving.read(path, changes)
        saved.check_code(env, network, allow_modules, changes)
        options = {**saved.options, **changes}
        name = options.pop("env")
        model = cls(name if env is None else env, network=network, **options)
        saved.restore(model)
        return model


def _seen_and_done(shards: Shards) -> str:
    """What the policy must fit, in words."""
    seen, done = shards.vector.single_observation_space, shards.vector.single_action_space
    masks = ", masked" if isinstance(shards.observations, MaskedObservations) else ""
    return f"observations {seen}{masks}, actions {done}"


@contextmanager
def _threads(number: int) -> Iterator[None]:
    """Run with this many threads of torch, and leave the caller's setting as it was."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
