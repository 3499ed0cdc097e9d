"""From a rollout to what each of its actions is credited with, by the options of the config."""

from __future__ import annotations

import torch
from torch import Tensor

from eligibility.errors import InvalidValueError
from eligibility.reinforce.baseline import Baseline
from eligibility.reinforce.baselines import BASELINES
from eligibility.reinforce.returns import generalized_advantages, rewards_to_go
from eligibility.reinforce.state_value import StateTable, StateValue
from eligibility.train.baseline_names import BaselineOption, options_of
from eligibility.train.checkpoint import named, part_of
from eligibility.train.config import Config
from eligibility.train.network_layers import RunningNormalization
from eligibility.train.observations import Observations
from eligibility.train.rollout import Rollout

# Of an observation, up to which state-value's system of equations is solved in reasonable time.
_MOST_FEATURES = 2048


class AdvantageEstimator:
    """The estimator that a config names. Its baselines may remember earlier rollouts.

    ==================  =======================================================================
    option              what it does to the estimate of the policy gradient
    ==================  =======================================================================
    reward-to-go        unbiased for γ = 1 or with γ^t; drops the noise of earlier rewards
    whole-return        unbiased for the discounted return, and noisier
    next-reward         biased, unless what follows a reward does not depend on what was before it
    discount_updates    with γ < 1, makes reward-to-go unbiased for the discounted return
    gae_lambda < 1      biased by the errors of V, less noise
    bootstrap           biased by the errors of V; right for tasks without an end
    normalize           the same direction up to 1/N; the length is that of unit advantages
    normalize_returns   likewise, of unit returns over all rollouts so far
    ==================  =======================================================================

    The baseline per-weight is not among those here: it is subtracted from gradients.
    """

    def __init__(self, config: Config, observations: Observations) -> None:
        self._config, self._observations = config, observations
        options = [option for option in options_of(config.baseline) if not option.of_weights]
        self._is_table = observations.categories == 1  # one index says which state it is
        predicts = any(option.predicts for option in options) and not self._is_table
        if predicts and observations.features > _MOST_FEATURES:
            raise InvalidValueError(
                "`baseline`",
                f"state-value for observations of {observations.features:,} numbers",
                f"at most {_MOST_FEATURES:,}: it solves a linear system of twice their number",
                "choose another baseline, such as time-dependent-leave-one-out",
            )
        self.baselines = {option.name: self._baseline(option) for option in options}
        one = torch.ones(1, dtype=torch.bool)
        self._returns = RunningNormalization(one) if config.normalize_returns else None
        several = self.baselines.values()
        self._critic = next((b for b in several if isinstance(b, StateValue | StateTable)), None)

    def _baseline(self, option: BaselineOption) -> Baseline:
        if option.predicts and self._is_table:
            return StateTable(self._observations.features)
        if option.predicts:
            return StateValue(time=self._config.value_knows_time)
        return BASELINES[option.name](*[self._config.baseline_rate] * option.averages)

    def _states(self, kept: Tensor) -> Tensor:
        """What the critic is told of observations as kept."""
        if self._is_table:
            return self._observations.indices(kept).long()
        return self._observations.encode(kept)

    def __call__(self, rollout: Rollout) -> tuple[Tensor, float]:
        """The advantages of the N steps that count, float32 ``[N]``, and the explained variance."""
        bootstrap = self._predict_after_truncations(rollout)
        ends = rollout.terminated  # after which nothing counts for what came before
        if self._config.credit == "next-reward":
            ends = ends | (rollout.rewards != 0)
        returns = rewards_to_go(
            rollout.rewards,
            self._config.discount,
            terminated=ends,
            truncated=rollout.truncated,
            bootstrap=bootstrap,
        )
        if self._config.credit == "whole-return":
            returns = torch.where(rollout.alive, returns[0], 0)
        advantages = self._subtract_baselines(rollout, returns, bootstrap)
        explained = _explained_variance(returns[rollout.alive], advantages[rollout.alive])
        if self._config.discount_updates:
            advantages = self.step_weights(rollout) * advantages
        advantages = advantages[rollout.alive]
        if self._returns is not None:
            self._returns.update(returns[rollout.alive].unsqueeze(-1))
            advantages = advantages * self._returns.factor
        if self._config.normalize:
            scale = advantages.std(correction=0)
            # All equal but for rounding: nothing to learn from, and nothing to divide by.
            rounding = torch.finfo(returns.dtype).eps * returns.abs().sum()
            advantages = torch.where(scale > rounding, advantages / scale, 0)
        return advantages.float(), explained

    def step_weights(self, rollout: Rollout) -> Tensor:
        """By what the update of each step is weighed, whatever its return: ``[T, 1]``."""
        discount = self._config.discount if self._config.discount_updates else 1.0
        return discount ** torch.arange(len(rollout.alive)).double().unsqueeze(-1)

    def state_dict(self) -> dict[str, Tensor]:
        """What the baselines remember."""
        return self._named({name: b.state_dict() for name, b in self.baselines.items()})

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        for name, baseline in self.baselines.items():
            baseline.load_state_dict(part_of(state, name))
        if self._returns is not None:
            self._returns.load_state_dict(part_of(state, "returns"))

    def learned_state(self) -> dict[str, Tensor]:
        """Zeros in the shapes that `state_dict` has once a rollout was seen."""
        features = self._observations.features
        return self._named({name: b.learned_state(features) for name, b in self.baselines.items()})

    def _named(self, states: dict[str, dict[str, Tensor]]) -> dict[str, Tensor]:
        """The states of the baselines, and the running moments of the returns, if they are kept."""
        if self._returns is not None:
            states["returns"] = self._returns.state_dict()
        tensors: dict[str, Tensor] = {}
        for part, state in states.items():
            tensors |= named(part, state)
        return tensors

    def _predict_after_truncations(self, rollout: Rollout) -> Tensor | None:
        """V of the state after each truncation, ``[T, B]``; None: nothing is counted there."""
        if not self._config.bootstrap or self._critic is None:
            return None
        final = self._states(rollout.final_observations)
        predicted = self._critic.predict(final, rollout.alive.sum(0))
        return torch.where(rollout.truncated, predicted, 0)

    def _subtract_baselines(
        self, rollout: Rollout, returns: Tensor, bootstrap: Tensor | None
    ) -> Tensor:
        """``[T, B]``, of no meaning where not alive."""
        advantages = returns
        for baseline in self.baselines.values():
            if baseline is self._critic:
                advantages = self._subtract_value(rollout, returns, bootstrap, baseline)
            else:
                advantages = advantages - baseline(advantages, rollout.alive)
        return advantages

    def _subtract_value(
        self, rollout: Rollout, returns: Tensor, bootstrap: Tensor | None, critic: Baseline
    ) -> Tensor:
        values = critic(returns, rollout.alive, self._states(rollout.observations))
        if self._config.gae_lambda == 1:
            return returns - values
        following = torch.cat([values[1:], torch.zeros_like(values[:1])])
        return generalized_advantages(
            rollout.rewards,
            values,
            following if bootstrap is None else following + bootstrap,
            self._config.discount,
            self._config.gae_lambda,
            terminated=rollout.terminated,
            truncated=rollout.truncated,
        )


def _explained_variance(returns: Tensor, advantages: Tensor) -> float:
    """``1 − Var(advantage)/Var(return)``, before any scaling; NaN where all returns are equal."""
    whole = float(returns.var(correction=0))
    return 1 - float(advantages.var(correction=0)) / whole if whole > 0 else float("nan")
