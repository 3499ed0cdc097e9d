"""From a rollout to what each of its actions is credited with, by the options of the config."""

from __future__ import annotations

import torch
from torch import Tensor

from eligibility.reinforce.baselines import BASELINES, StateValue
from eligibility.reinforce.returns import generalized_advantages, rewards_to_go
from eligibility.train.config import Config
from eligibility.train.observations import Observations
from eligibility.train.rollout import Rollout


class AdvantageEstimator:
    """The estimator that a config names. Its baseline may remember earlier rollouts.

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
    ==================  =======================================================================
    """

    def __init__(self, config: Config, observations: Observations) -> None:
        self._config, self._observations = config, observations
        self.baseline = BASELINES[config.baseline]()

    def __call__(self, rollout: Rollout) -> Tensor:
        """The advantages of the steps that count, float32 ``[N]``."""
        bootstrap = self._predict_after_truncations(rollout)
        returns = rewards_to_go(
            rollout.rewards,
            self._config.discount,
            terminated=self._ends_of_credit(rollout),
            truncated=rollout.truncated,
            bootstrap=bootstrap,
        )
        weight = self._config.discount ** torch.arange(len(returns)).double().unsqueeze(-1)
        if self._config.credit == "whole-return":
            returns = torch.where(rollout.alive, returns[0], 0)
        advantages = self._subtract_baseline(rollout, returns, bootstrap)
        if self._config.discount_updates:
            advantages = weight * advantages
        advantages = advantages[rollout.alive]
        if self._config.normalize:
            scale = advantages.std(correction=0)
            # All equal but for rounding: nothing to learn from, and nothing to divide by.
            rounding = torch.finfo(returns.dtype).eps * returns.abs().sum()
            advantages = torch.where(scale > rounding, advantages / scale, 0)
        return advantages.float()

    def _ends_of_credit(self, rollout: Rollout) -> Tensor:
        """After which steps nothing counts for what came before, ``[T, B]``."""
        if self._config.credit == "next-reward":
            return rollout.terminated | (rollout.rewards != 0)
        return rollout.terminated

    def _predict_after_truncations(self, rollout: Rollout) -> Tensor | None:
        """V of the state after each truncation, ``[T, B]``; None: nothing is counted there."""
        if not self._config.bootstrap or not isinstance(self.baseline, StateValue):
            return None
        final = self._observations.encode(rollout.final_observations)
        predicted = self.baseline.predict(final, rollout.alive.sum(0))
        return torch.where(rollout.truncated, predicted, 0)

    def _subtract_baseline(
        self, rollout: Rollout, returns: Tensor, bootstrap: Tensor | None
    ) -> Tensor:
        """``[T, B]``, of no meaning where not alive."""
        states = None
        if isinstance(self.baseline, StateValue):
            states = self._observations.encode(rollout.observations)
        values = self.baseline(returns, rollout.alive, states)
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
