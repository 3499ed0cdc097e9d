"""What programs reinforce an action with: the reward-to-go, conventions, and faults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from eligibility.audit.arrays import Array, Booleans
from eligibility.audit.judgement.timeline import Timeline


@dataclass(frozen=True)
class Credit:
    """What an action is reinforced with.

    Attributes:
        rule: Identifier; empty for the reward-to-go.
        weights: [P, I] for a discount.
        factor: [P, I] what every action's weight is multiplied by in the end.
        differs: Whether it is another credit than one before it in the list.
    """

    rule: str
    weights: Callable[[Timeline, float], Array]
    factor: Callable[[Timeline], Array | Booleans] | None = None
    differs: Callable[[Timeline], bool] = lambda line: True

    def of(self, line: Timeline, discount: float) -> Array:
        """[P, I] the weights, kept: thousands of compositions begin with the same few."""
        return _kept(self, line, discount)


@lru_cache(maxsize=512)
def _kept(credit: Credit, line: Timeline, discount: float) -> Array:
    weights = credit.weights(line, discount)
    weights.setflags(write=False)
    return weights


def _several(line: Timeline) -> bool:
    return not line.single


def _reward_to_go(line: Timeline, discount: float) -> Array:
    return line.discounted(discount)


def _of_lengths(line: Timeline) -> bool:
    """Whether episodes have several lengths: else what each step is charged is a baseline."""
    return bool(np.ptp(line.length[line.present]) > 0)


CREDITS = (
    Credit("", _reward_to_go),
    Credit("whole-episode-return", lambda line, g: line.episode_return(g)),
    Credit(
        "rewards-centred",
        lambda line, g: line.accumulated(line.reward - line.mean(line.reward, "batch"), g),
        differs=_of_lengths,
    ),
    Credit(
        "rewards-centred",
        lambda line, g: line.accumulated(line.reward - line.mean(line.reward, "episode"), g),
        differs=lambda line: _several(line) and _of_lengths(line),
    ),
    Credit("immediate-reward", lambda line, g: line.reward * line.present),
    Credit("reversed-returns", lambda line, g: line.mirrored(line.discounted(g))),
    Credit(
        "reversed-returns",
        lambda line, g: line.mirrored_in_rollout(line.discounted(g), g),
        differs=_several,
    ),
    # summed from the first step on, and put in the front: the rewards up to the mirrored step
    Credit("reversed-returns", lambda line, g: line.mirrored(line.so_far(g))),
    Credit("shifted-rewards", lambda line, g: line.shifted(line.discounted(g), 1)),
    Credit("shifted-rewards", lambda line, g: line.shifted(line.discounted(g), -1)),
    # stored before the step: the reward of the step before, the last one never
    Credit("shifted-rewards", lambda line, g: line.accumulated(line.shifted(line.reward, -1), g)),
    Credit(
        "shifted-rewards",
        lambda line, g: line.shifted_in_batch(line.discounted(g)),
        differs=_several,
    ),
    Credit(
        "shifted-rewards",
        lambda line, g: line.shifted_in_rollout(line.discounted(g), g),
        differs=lambda line: line.crowded or not line.gapless,
    ),
    Credit("rewards-so-far", lambda line, g: line.so_far(g)),
    Credit("rewards-so-far", lambda line, g: line.so_far(1.0)),
    Credit("discount-from-the-end", lambda line, g: line.from_the_end(g)),
    # ∇π instead of ∇ ln π: each eligibility comes with the factor π
    Credit("probability-not-log-probability", _reward_to_go, lambda line: np.exp(line.log_prob)),
    Credit("last-step-dropped", _reward_to_go, lambda line: line.time < line.length - 1),
    Credit("last-step-dropped", _reward_to_go, lambda line: ~line.last_of_batch, _several),
    Credit(
        "last-step-dropped",
        _reward_to_go,
        lambda line: ~line.last_of_rollout,
        lambda line: line.crowded or not line.gapless,
    ),
    Credit("only-last-step", _reward_to_go, lambda line: line.last_of_batch),
    Credit(
        "only-last-step", _reward_to_go, lambda line: line.time == line.length - 1, differs=_several
    ),
    Credit(
        "last-reward-dropped",
        lambda line, g: line.accumulated(line.reward * (line.time < line.length - 1), g),
    ),
    Credit("returns-unused", lambda line, g: line.present.astype(float)),
    Credit("integer-returns", lambda line, g: np.trunc(line.discounted(g))),
    Credit("return-carried-over-episodes", lambda line, g: line.carried(g), differs=_several),
    Credit(
        "return-carried-over-episodes",
        lambda line, g: line.carried_by_row(g),
        differs=lambda line: not line.gapless,
    ),
    Credit(
        "return-carried-over-episodes",
        lambda line, g: line.carried_from_before(g),
        differs=_several,
    ),
    Credit(
        "return-carried-over-actors",
        lambda line, g: line.carried_over_actors(g),
        differs=lambda line: line.crowded,
    ),
)
