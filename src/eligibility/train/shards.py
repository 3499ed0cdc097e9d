"""The environments of one process, and the rollouts they give."""

from __future__ import annotations

from torch import nn

from eligibility.train.config import Config
from eligibility.train.distributed import Processes
from eligibility.train.environment_sources import EnvironmentSource
from eligibility.train.environments import horizon
from eligibility.train.policy_spaces import interface
from eligibility.train.rollout import Collector, Rollout, side_by_side
from eligibility.train.seeding import Stream, derive


class Shards:
    """This process's share of the environments; what happens in a shard depends on its number.

    At first there is one, to look at its spaces: a model that is only evaluated needs no more.
    """

    def __init__(self, source: EnvironmentSource, config: Config, processes: Processes) -> None:
        self._numbers, self._seed = processes.shards(config.shards), config.seed
        self._source, self._config = source, config
        source.check_shards(len(self._numbers))
        self.vector, self.observations, self.policy = interface(
            source.make(1, config.env_kwargs), config
        )
        self.horizon = horizon(self.vector, config.max_episode_steps)
        self._collectors: list[Collector] = []

    def prepare(self) -> None:
        """Make the environments, if that is still to be done."""
        if self._collectors:
            return
        self._source.close(self.vector)
        each = self._config.environments // self._config.shards
        made = [
            interface(self._source.make(each, self._config.env_kwargs), self._config)
            for _ in self._numbers
        ]
        self.vector = made[0].vector
        self._collectors = [Collector(one, self.horizon) for one in made]

    def collect(self, network: nn.Module, number: int) -> Rollout:
        """The ``number``-th rollout: a function of the seed, that number and the weights."""
        self.prepare()
        rollouts = []
        for shard, collector in zip(self._numbers, self._collectors, strict=True):
            seed, generator = derive(self._seed, Stream.TRAINING, number, shard)
            rollouts.append(collector.collect(network, seed, generator))
        return side_by_side(rollouts)
