"""Advantages that a critic's values enter, as programs compute them.

Rewards-to-go minus V(s), bootstrapped and generalised advantages, with the ways in which an
episode's or a batch's end enters them, the right way first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from eligibility.audit.arrays import Array, Integers
from eligibility.audit.judgement.carried import CARRIED, RULE, carried_advantage
from eligibility.audit.judgement.catalogue import Candidate
from eligibility.audit.judgement.evidence import Evidence, histories
from eligibility.audit.judgement.timeline import Timeline

# How the end of an episode enters the advantage, the right way first.
ENDINGS = ("", "truncation-as-termination", "bootstrapped-after-termination")
# A baseline that was moved towards the batch's own returns before it is subtracted: their mean, or
# that of its episodes' returns, discounted or not. Its one unknown is how far.
OWN_RETURN = "baseline-sees-own-return"
OWN = ("own-mean", "own-return", "own-reward")
# Returns [T] minus values [T, 1]: every return meets every value; "-summed" over the actions too.
CROSSED = ("crossed", "crossed-summed", "crossed-after-transform")
AFTER_TRANSFORM = ("return-after-transform", CROSSED[2])  # whitened, and then minus V(s)
OF_WHITENED = "return-of-whitened"  # returns are whitened before V(s) is subtracted, and then all
BY_COUNT = "limit-told-by-count"  # who terminates at the very step of the limit is cut off
AT_BATCH_END = "batch-end-told-by-count"  # who terminates at the last step of a batch is cut off
# V = 0 behind the last step of a batch, as if the episode ended there; time limits perhaps too.
CUT = "return-cut-at-update"
BEHIND_BATCH = (CUT, f"{CUT} and {ENDINGS[1]}")
HERE = "bootstrapped-from-here"  # V(s) in the place of V(s') too: no later reward is in it
FROM_LAST = "bootstrapped-from-last-state"  # V of an episode's last own state, behind it
AFTER_RESET = "bootstrapped-from-reset"  # V of the actor's next step, whatever ended before it
ACTION_VALUE = "action-value"  # Q(s, a) of the critic, and no reward
SCALED = "scaled"
AFFINE = ("", "centred", "leave-one-out", "centred-so-far")


@dataclass(frozen=True)
class Advantage:
    """A composition whose credits a critic's values have entered.

    Σ_{k ≥ t} (γλ)^(k−t) (r_k + γ V(s_{k+1}) − V(s_k)) (Schulman et al. 2016), perhaps plus V(s_t),
    or the composition's own credit minus V(s).

    Attributes:
        form: Everything but the values.
        ending: One of ``ENDINGS``, ``CARRIED``, ``BY_COUNT``, ``AT_BATCH_END``, ``HERE``,
            ``FROM_LAST`` or ``AFTER_RESET``; or, without bootstrap, "return": the credit minus
            V(s), one of ``AFTER_TRANSFORM``, ``OF_WHITENED``, one of ``CROSSED``,
            ``ACTION_VALUE``, or one of ``OWN``: minus a share of itself.
        decay: λ.
        of: What the values depend on: "state", "time" for V(s, t), or "history" for V(s₀, …, s_t).
        baseline: Whether V(s) is subtracted from a bootstrapped return.
        steps: How many rewards a bootstrapped return has; 0: all of the episode's.
        rewards: What is done to the rewards, or of ``OF_WHITENED`` to the returns, before values
            enter; None: nothing.
    """

    form: Candidate
    ending: str
    decay: float
    of: str = "state"
    baseline: bool = True
    steps: int = 0
    rewards: Candidate | None = None

    @property
    def discount(self) -> float:
        """γ."""
        return self.form.discount

    @property
    def norm(self) -> str:
        """What the sum is divided by."""
        return self.form.norm

    @property
    def faults(self) -> tuple[str, ...]:
        """Its parts that are wrong in themselves."""
        known = {ending: ending for ending in ENDINGS[1:]}
        known |= dict.fromkeys(OWN, OWN_RETURN) | dict.fromkeys(CROSSED, "broadcast")
        known |= dict.fromkeys(CARRIED, RULE) | {HERE: "immediate-reward"}
        known |= {BEHIND_BATCH[1]: ENDINGS[1], AFTER_RESET: ENDINGS[2], FROM_LAST: FROM_LAST}
        changed = self._changed_rewards
        centred = changed is not None and not changed.transform.startswith("scaled")
        own = ("rewards-centred",) if centred else ()
        return self.form.faults + own + ((known[self.ending],) if self.ending in known else ())

    @property
    def conventions(self) -> tuple[str, ...]:
        """Its parts that people choose on purpose."""
        if self.ending in OWN:
            return self.form.conventions
        estimated = "gae" if self.between else "bootstrapped"
        count: tuple[str, ...] = (BY_COUNT,) if self.ending in (BY_COUNT, AT_BATCH_END) else ()
        count = (CUT,) if self.ending in BEHIND_BATCH else count
        count += (SCALED,) if self._changed_rewards and self.divides_rewards else ()
        return ("baseline" if self.of_return else estimated, *count, *self.form.conventions)

    @property
    def _changed_rewards(self) -> Candidate | None:
        """What is done to the rewards themselves, if anything is."""
        return None if self.ending == OF_WHITENED else self.rewards

    @property
    def divides_rewards(self) -> bool:
        """Whether the rewards, or the returns before values enter, are divided by a deviation."""
        return self.rewards is not None and self.rewards.divides

    @property
    def without_spread(self) -> Advantage:
        """The same without a division by a standard deviation: affine in the values."""
        if is_affine(self):
            return self
        centred = self.form.transform.startswith("whitened")
        return replace(self, form=replace(self.form, transform="centred" if centred else ""))

    @property
    def of_directions(self) -> Advantage:
        """The same where each path's sum may be multiplied by any number."""
        form = self.without_spread
        own = form.norm if form.norm == "mean-over-each-episode" else ""
        return replace(form, form=replace(form.form, norm=own))

    @property
    def of_return(self) -> bool:
        """Whether values are subtracted from the composition's own credit, without a bootstrap."""
        return self.ending in ("return", *AFTER_TRANSFORM, OF_WHITENED, *CROSSED)

    @property
    def between(self) -> bool:
        """Whether its λ is a guess."""
        return 0.0 < self.decay < 1.0

    def places(self, evidence: Evidence) -> tuple[Integers, Integers, int]:
        """[P, I] index of the value before each action, and after it; and how many there are."""
        if self.ending in OWN:
            return np.zeros_like(evidence.state), np.zeros_like(evidence.state), 1
        if self.ending == ACTION_VALUE:
            pairs = evidence.state + evidence.states * evidence.action
            return pairs, pairs, int(pairs.max(initial=0)) + 1
        if self.of == "state":
            return evidence.state, evidence.next_state, evidence.states
        if self.of == "history":
            return histories(evidence)
        late = evidence.time + 1
        before = evidence.state + evidence.states * evidence.time
        after = evidence.next_state + evidence.states * late
        return before, after, evidence.states * (int(late.max(initial=0)) + 1)

    def weights(self, evidence: Evidence, line: Timeline, values: Array) -> Array:
        """[P, I] the reinforcement of each action for ``values``, which `places` numbers.

        Of several [V, N] values, each by itself, where the transform comes before them.
        """
        if self.ending in AFTER_TRANSFORM:
            own = self.form.credit.of(line, self.discount)
            here = values[..., self.places(evidence)[0]]
            here = line.mean(here, "batch") if self.ending in CROSSED else here
            plain = replace(self.form, transform="")
            return self.form.finished(own, line) - plain.finished(here * line.present, line)
        return self.form.finished(self.credits(evidence, line, values), line)

    def credits(self, evidence: Evidence, line: Timeline, values: Array) -> Array:
        """[P, I] what each action is credited with for ``values``, before the transform."""
        before, after, _ = self.places(evidence)
        here = values[before]
        if self.ending in OWN:
            credit = self.form.credit.of(line, self.discount)
            credit = credit - here * _own_return(line, self.ending, credit, self.discount)
        elif self.ending == OF_WHITENED and self.rewards is not None:
            credit = self.rewards.weights(line) - here
        elif self.ending == "return" and self.rewards is not None:
            credit = line.accumulated(self.rewards.weights(line), self.discount) - here
        elif self.ending == "return":
            credit = self.form.credit.of(line, self.discount) - here
        elif self.ending in CROSSED:
            credit = self.form.credit.of(line, self.discount) - line.mean(here, "batch")
            if self.ending == CROSSED[1]:
                credit = credit * line.count("batch")
        elif self.ending == ACTION_VALUE:
            credit = here
        elif self.ending in CARRIED:
            factors = self.discount * np.array([1.0, self.decay])
            form, there = CARRIED[self.ending], values[after]
            credit = carried_advantage(form, evidence, line, here, there, factors)
        else:
            cut = evidence.time == evidence.time[evidence.truncated].max(initial=-1)
            last = line.following_of_actor < 0
            ended = {
                "": evidence.terminated,
                HERE: evidence.terminated,
                FROM_LAST: evidence.terminated,
                BY_COUNT: evidence.terminated & ~cut,
                AT_BATCH_END: evidence.terminated & ~last,
                BEHIND_BATCH[0]: evidence.terminated | last,
                BEHIND_BATCH[1]: evidence.terminated | evidence.truncated | last,
                "truncation-as-termination": evidence.terminated | evidence.truncated,
                "bootstrapped-after-termination": np.zeros_like(evidence.terminated),
                AFTER_RESET: np.zeros_like(evidence.terminated),
            }[self.ending]
            following = here if self.ending == HERE else values[after]
            if self.ending == FROM_LAST:
                following = np.where(line.time == line.length - 1, here, following)
            if self.ending == AFTER_RESET:
                following = _of_next_decision(evidence, line, here, following)
            following = np.where(ended, 0.0, following)
            reward = evidence.reward if self.rewards is None else self.rewards.weights(line)
            delta = reward + self.discount * following - here
            factor = self.discount * self.decay
            credit = line.accumulated(delta * line.present, factor, self.steps)
            credit = credit if self.baseline else credit + here
        present: Array = credit * line.present
        return present


def _of_next_decision(evidence: Evidence, line: Timeline, here: Array, there: Array) -> Array:
    """[P, I] V where the actor acts next: behind an end, where an episode starts.

    An episode that nobody has acted in yet is taken to start where the path does.
    """
    started = np.where(evidence.terminated | evidence.truncated, here[:, :1], there)
    return line.next_of_actor(here, started)


def _own_return(line: Timeline, kind: str, credit: Array, discount: float) -> Array:
    """[P, I] the mean over the batch: of its credits, or of its episodes' returns."""
    if kind == "own-mean":
        return line.mean(credit, "batch")
    whole = line.episode_return(discount if kind == "own-return" else 1.0)
    episodes = np.maximum(line.episodes, 1)[:, None]
    return line.total(whole / np.maximum(line.length, 1), "batch") / episodes


def is_affine(form: Advantage) -> bool:
    """Whether its weights are affine in the critic's values."""
    return form.form.transform in AFFINE or form.ending in AFTER_TRANSFORM
