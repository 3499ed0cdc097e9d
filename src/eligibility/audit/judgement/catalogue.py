"""The ways in which programs weigh an action's ∇ log π: the right one, conventions, and faults.

A candidate is put together from parts, as programs are: the credit of each action, whether it is
multiplied by γ^t, what is done to the credits of a batch, which log-probability meets which credit,
and what the sum is divided by.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import product

import numpy as np

from eligibility.audit.arrays import Array, Booleans
from eligibility.audit.judgement.credits import CREDITS, Credit
from eligibility.audit.judgement.evidence import Evidence
from eligibility.audit.judgement.timeline import Timeline

# How a log-probability meets the credits in each coupling, as the factor on their batch total.
MEAN_TIMES_SUM = "mean-log-prob-times-sum-of-returns"
COUPLINGS = {
    "": None,
    MEAN_TIMES_SUM: lambda steps: 1.0 / steps,
    "broadcast": lambda steps: np.ones_like(steps),
}
# Joined by "+": what is subtracted, and what it is then divided by; "-late" after γ^t.
TRANSFORMS = (
    "", "centred", "whitened", "whitened-biased", "scaled", "scaled-biased", "leave-one-out",
    "centred-so-far", "whitened-of-several", "whitened-biased-of-several",
)  # fmt: skip
WHITENED = ("whitened", "whitened-biased")  # by N − 1, or by N
_OF_REWARDS = ("scaled-of-rewards", "scaled-of-rewards-biased")  # before they are summed
_SEVERAL = "-of-several"  # what is alone in its scope stays as it is
# Those that need several episodes.
_OTHERS = (
    "leave-one-out-of-episodes", "leave-one-out-of-times", "leave-one-out-of-returns",
    "leave-one-out-of-episodes+scaled-biased", "leave-one-out-of-times+scaled-biased",
    "leave-one-out-of-episodes+scaled", "leave-one-out-of-times+scaled",
)  # fmt: skip
_LATE = ("centred-late", "whitened-late", "whitened-biased-late", "scaled-biased-late")
_OTHERS_LATE = (
    "leave-one-out-of-episodes+scaled-biased-late",
    "leave-one-out-of-times+scaled-biased-late",
)
NORMS = ("", "mean-over-time", "mean-over-each-episode", "mean-over-episodes")
SCOPES = ("batch", "episode")
_TIME = "time"  # a scope of these: the decisions of all episodes at one time
_AT_TIMES = ("centred", "whitened", "whitened-biased")
_TIME_OF_ALL = "time-of-all"  # the same, where an episode that has ended counts with 0
_RETURNS = "returns"  # a scope: of the batch's episodes, each counts once, not once for each step
_SUMS = "sums"  # a scope: of the episodes' returns without discount
_EQUAL = 1e-12  # share of the largest number below which a deviation is rounding


@dataclass(frozen=True)
class Candidate:
    """One composition.

    Attributes:
        credit: The action's credit.
        discount: γ.
        time_discount: Whether γ^t multiplies it.
        transform: What is done to the credits before they are used.
        scope: Over what: the batch's steps, each episode's, each time's (of those that are there,
            or of all episodes), or the batch's returns, discounted or not.
        coupling: Which log-probability meets which credit.
        norm: What the sum is divided by.
        epsilon: Added to a standard deviation before dividing by it; fitted, see `spread.py`.
        alone: What multiplies a credit that is alone in its scope and so stays as it is, such as
            the factor of a program that scales its rewards; fitted as well.
    """

    credit: Credit
    discount: float
    time_discount: bool
    transform: str
    scope: str
    coupling: str
    norm: str
    epsilon: float = 0.0
    alone: float = 1.0

    @property
    def form(self) -> Candidate:
        """Itself: it has no critic's values."""
        return self

    @property
    def involved(self) -> int:
        """How many of its parts are not the plain ones."""
        return sum(map(bool, (self.credit.rule, self.transform, self.coupling, self.norm)))

    @property
    def faults(self) -> tuple[str, ...]:
        """Its parts that are wrong in themselves."""
        credit = () if self.credit.rule in ("", "whole-episode-return") else (self.credit.rule,)
        # mean(log_prob) · mean(returns) is what a [T] × [T, 1] product gives under mean()
        means = self.coupling == MEAN_TIMES_SUM and self.norm == "mean-over-time"
        coupling = "broadcast" if means else self.coupling
        return credit + ((coupling,) if coupling else ())

    @property
    def conventions(self) -> tuple[str, ...]:
        """Its parts that people choose on purpose, although most bias the gradient."""
        named = []
        if self.credit.rule == "whole-episode-return":
            named.append(self.credit.rule)
        if not self.time_discount and self.discount != 1.0 and not self.free_of_time:
            named.append("gamma-t-dropped")
        named += transform_names(self.transform)
        if self.norm:
            named.append(self.norm)
        return tuple(named)

    @property
    def free_of_time(self) -> bool:
        """Whether γ^t would be wrong here: G_0 already counts from the start."""
        return self.credit.rule == "whole-episode-return"

    def weights(self, line: Timeline) -> Array:
        """[P, I] the reinforcement of each action, up to one constant factor."""
        return self.finished(self.credit.of(line, self.discount), line)

    def finished(self, credit: Array, line: Timeline) -> Array:
        """[P, I] the reinforcement of each action for its ``credit`` [P, I].

        Of several [V, P, I], unless it divides by a deviation, each by itself.
        """
        return self.divided(*self.undivided(credit, line), line)

    def divided(self, numbers: Array, spread: Array | None, line: Timeline) -> Array:
        """[P, I] what `undivided` has returned, divided."""
        if spread is None:
            return numbers
        with np.errstate(divide="ignore", invalid="ignore"):
            divisor = spread + self.epsilon
            if self.spares_single:
                divisor = np.where(self._single(line), 1.0 / self.alone, divisor)
            # equal numbers: a program that divides by 0 is not finite, and a careful one gives 0
            none = (divisor == 0) | ~line.present
            divided: Array = np.where(none, 0.0, numbers / divisor)
        return divided

    def undivided(self, credit: Array, line: Timeline) -> tuple[Array, Array | None]:
        """[P, I] the reinforcement before its division, and the deviation it is divided by."""
        parts = self.transform.split("+") if self.transform else []
        late = [part for part in parts if part.endswith("-late")]
        credit, spread = self._transformed(credit, parts[: len(parts) - len(late)], line)
        if self.time_discount:
            credit = credit * line.powers(self.discount)
        if late:
            credit, spread = self._transformed(credit, late, line)
        if self.credit.factor is not None:
            credit = credit * self.credit.factor(line)
        factor = COUPLINGS[self.coupling]
        if factor is not None:
            count = line.count(self.scope)
            credit = line.total(credit, self.scope) * factor(count)
        if self.norm:
            credit = credit * norm_factor(self.norm, line)
        return np.where(line.present, credit, 0.0), spread

    def _transformed(
        self, credit: Array, parts: Sequence[str], line: Timeline
    ) -> tuple[Array, Array | None]:
        """[P, I] what parts of the transform subtract from, and the deviation that divides it."""
        spread = None
        for part in parts:
            spared = self._single(line) if self.spares_single else False
            if _divides(part):
                spread = np.where(spared, np.nan, _spread(credit, part, self.scope, line))
            credit = np.where(spared, credit, _shifted(credit, part, self.scope, line))
        return credit, spread

    @property
    def spares_single(self) -> bool:
        """Whether what is alone in its scope stays as it is."""
        return self.transform.endswith(_SEVERAL)

    def _single(self, line: Timeline) -> Booleans:
        """[P, I] the decisions that are alone in their scope."""
        return np.asarray(_members(self.scope, line) == 1)

    @property
    def crosses_episodes(self) -> bool:
        """Whether what an action gets depends on other episodes of the batch."""
        return bool(self.coupling) or (bool(self.transform) and self.scope != "episode")

    @property
    def divides(self) -> bool:
        """Whether it divides by a standard deviation."""
        return _divides(self.transform)


@lru_cache(maxsize=32)
def norm_factor(norm: str, line: Timeline) -> Array:
    """[P, I] what a composition's sum is multiplied by."""
    steps = np.maximum(line.steps, 1).astype(float)[:, None]
    episodes = np.maximum(line.episodes, 1).astype(float)[:, None]
    factors = {
        "": np.ones_like(steps),
        "mean-over-time": 1.0 / steps,
        "mean-over-each-episode": 1.0 / (np.maximum(line.length, 1) * episodes),
        "mean-over-episodes": 1.0 / episodes,
    }
    factor: Array = factors[norm]
    return factor


def _shifted(credit: Array, transform: str, scope: str, line: Timeline) -> Array:
    """[P, I] the credits after what a transform subtracts."""
    if transform.startswith("leave-one-out-of-"):
        return credit - _mean_of_others(credit, line, transform.removeprefix("leave-one-out-of-"))
    if not transform or transform.startswith("scaled"):
        return credit
    if transform == "centred-so-far":
        so_far = np.cumsum(np.where(line.present, credit, 0.0), axis=-1)
        passed: Array = credit - so_far / (1.0 + np.arange(credit.shape[-1]))
        return passed
    centred, count = _centred(credit, scope, line)
    if transform != "leave-one-out":
        return centred
    with np.errstate(divide="ignore", invalid="ignore"):
        left_out: Array = centred * count / (count - 1)
    return left_out


def _spread(credit: Array, transform: str, scope: str, line: Timeline) -> Array:
    """[P, I] the standard deviation of the credits of a scope; 0 where it is rounding."""
    credit = line.reward if transform in _OF_REWARDS else _numbers(credit, scope, line)
    centred, count = _centred(credit, scope, line)
    square = line.total(_counting(centred * centred, scope, line), _counted(scope))
    with np.errstate(divide="ignore", invalid="ignore"):
        spread: Array = np.sqrt(square / (count if "-biased" in transform else count - 1))
        size = np.abs(credit * line.present).max(axis=1, keepdims=True)
        return np.where(spread <= _EQUAL * size, 0.0, spread)


def _centred(credit: Array, scope: str, line: Timeline) -> tuple[Array, Array]:
    """[P, I] credits without their mean, and how many they are."""
    count, of = _members(scope, line), _numbers(credit, scope, line)
    total = line.total(_counting(of, scope, line), _counted(scope))
    return credit - total / np.maximum(count, 1.0), count


def _numbers(credit: Array, scope: str, line: Timeline) -> Array:
    """[P, I] of which numbers a scope is: of the credits themselves, or of whole episodes' sums."""
    return line.episode_return(1.0) if scope == _SUMS else credit


def _counting(values: Array, scope: str, line: Timeline) -> Array:
    """[P, I] each value by how much it counts in a scope."""
    return values * line.firsts if scope in (_RETURNS, _SUMS) else values


def _members(scope: str, line: Timeline) -> Array:
    """[P, I] how many numbers a scope has."""
    return line.returns if scope in (_RETURNS, _SUMS, _TIME_OF_ALL) else line.count(scope)


@lru_cache(maxsize=32)
def has_single(scope: str, line: Timeline) -> bool:
    """Whether a number is alone in its scope anywhere, so that it may stay as it is."""
    return bool((_members(scope, line) == 1)[line.present].any())


def _counted(scope: str) -> str:
    return {_RETURNS: "batch", _SUMS: "batch", _TIME_OF_ALL: _TIME}.get(scope, scope)


def _mean_of_others(credit: Array, line: Timeline, what: str) -> Array:
    """[P, I] the mean credit of the other episodes: of their steps, at the same time, or first."""
    ones = np.ones_like(credit)
    if what != "times":
        share = line.firsts if what == _RETURNS else ones
        total = line.total(credit * share, "batch") - line.total(credit * share, "episode")
        count = line.total(share, "batch") - line.total(share, "episode")
    else:
        total = line.total(credit, "time") - credit
        count = line.total(ones, "time") - 1.0
    mean: Array = np.where(count > 0, total / np.maximum(count, 1.0), 0.0)
    return mean


@dataclass(frozen=True)
class Told:
    """What a measured credit says of the compositions that can have made it.

    Two are equal if they allow the same compositions.

    Attributes:
        rules: Rules of their credits.
        means: What may be subtracted, in the words of `reading.Reading`.
        divides: Whether they divide by a standard deviation.
        coupled: Whether all actions may have got the same sum.
        path: The one that was replayed.
        credit: [I, N] what each reward moves of its weights; None: no composition has it as it is.
        slopes: [I, N] what little of each reward moves of them, where they are not affine in it.
    """

    rules: frozenset[str]
    means: frozenset[str]
    divides: bool
    coupled: bool
    path: Evidence | None = field(default=None, compare=False)
    credit: Array | None = field(default=None, compare=False)
    slopes: Array | None = field(default=None, compare=False)

    def allows(self, credit: Credit, transform: str, coupling: str) -> bool:
        """Whether a composition of these parts has such a credit."""
        if _divides(transform) != self.divides:
            return False
        if coupling:
            return self.coupled
        return credit.rule in self.rules and bool(self.means & set(_means(transform)))


def _means(transform: str) -> tuple[str, ...]:
    """What a transform subtracts."""
    if transform.startswith("leave-one-out-of-"):
        return (f"other-{transform.removeprefix('leave-one-out-of-').partition('+')[0]}",)
    if transform == "centred-so-far":
        return ("so-far",)
    plain = not transform or transform.startswith("scaled")
    return ("",) if plain else ("batch", "episode", _TIME, _TIME_OF_ALL, _RETURNS)


def candidates(
    line: Timeline, discounts: Sequence[float], parts: int = 3, told: Told | None = None
) -> Iterator[Candidate]:
    """Compositions from the plainest to the most involved, up to ``parts`` unusual parts."""
    scopes = SCOPES[:1] if line.single else SCOPES
    norms = NORMS[:2] if line.single else NORMS
    several_episodes = () if line.single else (*_OTHERS, *_OTHERS_LATE)
    transforms = (*TRANSFORMS, *_LATE, *several_episodes, *_OF_REWARDS)
    at_times = () if line.single or (line.count(_TIME) == 1).all() else _AT_TIMES
    ends_early = bool((line.returns != line.count(_TIME))[line.present].any())
    credits = [credit for credit in CREDITS if credit.differs(line)]
    for involved in range(parts + 1):
        for credit, transform, coupling, norm in product(credits, transforms, COUPLINGS, NORMS):
            unusual = [bool(credit.rule), bool(transform), bool(coupling), bool(norm)]
            if sum(unusual) != involved or norm not in norms:
                continue
            if transform in _OF_REWARDS and credit.rule not in ("", "rewards-centred"):
                continue
            if told is not None and not told.allows(credit, transform, coupling):
                continue
            if bool(coupling) and credit.rule not in ("", "whole-episode-return"):
                continue
            several = transform in _OTHERS or transform in _OTHERS_LATE
            over = scopes if (transform and not several) or coupling else SCOPES[:1]
            returns = credit.rule in ("", "whole-episode-return") and not several
            if returns and transform in TRANSFORMS[1:] and not (coupling or line.single):
                over = (*over, _RETURNS)
            if transform in at_times and not coupling:
                over = (*over, _TIME)
            if transform == "centred" and transform in at_times and ends_early and not coupling:
                over = (*over, _TIME_OF_ALL)
            for scope in over:
                if transform.endswith(_SEVERAL) and not has_single(scope, line):
                    continue
                for discount in discounts:
                    for time_discount in (True, False) if discount != 1.0 else (False,):
                        if time_discount and (credit.rule == "whole-episode-return"):
                            continue
                        if transform.endswith("-late") and not time_discount:
                            continue
                        yield Candidate(
                            credit, discount, time_discount, transform, scope, coupling, norm
                        )


def compared_with_sums(
    line: Timeline, discounts: Sequence[float], told: Told | None = None
) -> Iterator[Candidate]:
    """Discounted returns that are compared with the mean of undiscounted ones."""
    for form in candidates(line, discounts, 2, told):
        if form.scope == _RETURNS and form.transform in _AT_TIMES and form.discount != 1.0:
            yield replace(form, scope=_SUMS)


def transform_names(transform: str) -> list[str]:
    """The conventions in a transform, without the details that tell its variants apart."""
    endings = (
        "-of-rewards-biased", "-of-rewards", "-biased-late", "-biased" + _SEVERAL, _SEVERAL,
        "-biased", "-late", "-of-episodes", "-of-times", "-of-returns", "-so-far",
    )  # fmt: skip
    parts = transform.split("+") if transform else []
    return [next((p.removesuffix(e) for e in endings if p.endswith(e)), p) for p in parts]


def _divides(transform: str) -> bool:
    return "whitened" in transform or "scaled" in transform
