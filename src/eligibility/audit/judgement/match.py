"""A composition that explains every path, and whether the gradients could have refused it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np

from eligibility.audit.arrays import Array
from eligibility.audit.judgement.advantage import Advantage
from eligibility.audit.judgement.catalogue import Candidate
from eligibility.audit.judgement.constants import Constants
from eligibility.audit.judgement.critic import linear_columns, spare_equations
from eligibility.audit.judgement.entropy import entropy_columns
from eligibility.audit.judgement.evidence import Evidence, episodes_of
from eligibility.audit.judgement.timeline import Timeline

SHARE = 1e-3  # a match must come from the composition itself, not from what may be added
_SPARE = 4  # weights that the values of a critic must explain beyond their own number
# Directions of the gradients beyond the unknowns, so that a match is not an accident.
MORE_EQUATIONS = 2
_SAME_DIRECTION = 1e-6  # relative size below which a direction is rounding


@dataclass(frozen=True)
class Match:
    """A composition that explains the gradient of every path.

    Attributes:
        form: The composition.
        use: Which decisions entered: all, or only "complete-episodes", "first-episodes",
            "last-episodes", "running-episodes" or some.
        scale: Its constant factor; negative: the sign is wrong.
        entropy: Factor of the entropy's gradient, relative to ``scale``; 0 for none.
        residual: ‖gradient − explanation‖ / ‖gradient‖ over all paths.
        values: The critic's values, if it has any.
        note: What else it takes, in words.
        changed: The convention that this is; empty without a note.
        entropies: Which entropy is added, in words; empty: that of all states.
        weights: The convention of its ratios of probabilities, if it has any.
        rewards: The problem's different rewards in order, and what the program makes of them.
        added: [states, 2] what is added to each reward by the state after it, and by whether the
            episode ended there, if anything is.
        here_only: Whether what is added to the rewards is known of these paths alone.
        merged: Whether paths of the same steps count as one.
        offset: What is added to each probability before its logarithm.
        beside: [D] the part of every path's gradient outside the composition.
    """

    form: Candidate | Advantage
    use: str
    scale: float
    entropy: float
    residual: float
    values: Array | None = None
    note: str = ""
    changed: str = ""
    entropies: str = ""
    weights: str = ""
    rewards: tuple[Array, Array] | None = None
    added: Array | None = None
    here_only: bool = False
    merged: bool = False
    offset: float = 0.0
    beside: Array | None = None

    @property
    def faultless(self) -> bool:
        """Whether nothing in it is wrong in itself."""
        return not self.form.faults and self.scale > 0.0 and self.entropy >= 0.0

    @property
    def plain(self) -> Candidate:
        """The composition without the critic's values."""
        return self.form.form


def with_rewards(
    evidence: Evidence, rewards: tuple[Array, Array] | None, added: Array | None = None
) -> Evidence:
    """The paths with what a program makes of the different rewards, which are in order.

    And with what it adds to each, [states, 2], by the state after it and whether that is an end.
    """
    used = evidence.reward
    if rewards is not None:
        own, became = rewards
        given = used.round(9)
        place = np.clip(np.searchsorted(own, given), 0, len(own) - 1)
        used = np.where(own[place] == given, became[place], used)
    if added is not None:
        ended = (evidence.terminated | evidence.truncated).astype(int)
        used = used + np.where(evidence.present, added[evidence.next_state, ended], 0.0)
    return replace(evidence, reward=used)


def with_offset(evidence: Evidence, offset: float) -> Evidence:
    """The paths with the slopes of ln(π + ``offset``) as eligibilities: π/(π + offset) of them."""
    factor = 1.0 / (1.0 + offset * np.exp(-evidence.log_prob))
    return replace(evidence, eligibility=evidence.eligibility * factor[..., None])


def determined(evidence: Evidence, line: Timeline, match: Match, measured: bool) -> bool:
    """Whether the gradients could have refused a critic's values: few short ones fit any rule.

    A rule with a fault must be told by different episodes, unless the ``measured`` credit, which
    could have refused it as well, has the rule.
    """
    if not isinstance(match.form, Advantage):
        return True
    columns = linear_columns(evidence, line, match.form.without_spread)
    columns += entropy_columns(evidence, line, match.form.norm) if match.entropy else ()
    needed = int(np.linalg.matrix_rank(np.array(columns))) + MORE_EQUATIONS
    plain = match.plain
    free = 1 + match.form.between + plain.spares_single  # ε, λ, and the factor
    of_each = plain.divides and plain.scope == "episode" and not line.single
    needed += free if of_each or (plain.divides and match.form.faults) else 0
    if of_each and not tell_equations(map(_centred, episodes_of(evidence)), needed):
        return False
    trusted = measured or match.faultless or match.plain.crosses_episodes
    enough = tell_equations(evidence.eligibility, needed)
    return enough and (trusted or tell_equations(episodes_of(evidence), needed))


def _centred(eligibilities: Array) -> Array:
    """[n, D] what weights that add up to 0 can make of them; of one, itself."""
    several = len(eligibilities) > 1
    return eligibilities - eligibilities.mean(axis=0) if several else eligibilities


def explaining(evidence: Evidence, columns: Sequence[Array], tolerance: float) -> Array | None:
    """The factors with which columns, [P * D] each, add up to the gradients.

    None if more than ``tolerance`` is left, or if as few different episodes might be explained by
    accident.
    """
    matrix, target = np.array(columns).T, evidence.ascent.ravel()
    factors, _, rank, _ = np.linalg.lstsq(matrix, target, rcond=1e-11)
    left = float(np.linalg.norm(target - matrix @ factors))
    if left > tolerance * float(np.linalg.norm(target)):
        return None
    told = tell_equations(episodes_of(evidence), int(rank) + MORE_EQUATIONS)
    return np.asarray(factors) if told else None


def tell_equations(eligibilities: Iterable[Array], needed: int) -> bool:
    """Whether the gradients along eligibilities, [n, D] each, give as many equations as needed."""
    ranks = (int(np.linalg.matrix_rank(each, rtol=_SAME_DIRECTION)) for each in eligibilities)
    return any(told >= needed for told in accumulate(ranks))


def tells_states_apart(
    evidence: Evidence, bonus: bool, constants: Constants, match: Match, line: Timeline
) -> bool:
    """Whether a match has no fault, values that are not all the same, and no unasked ``bonus``.

    Nor a λ that only the fit has found.
    """
    if not match.faultless or match.values is None or (match.entropy != 0.0 and not bonus):
        return False
    assert isinstance(match.form, Advantage)
    known = constants.decays_at(match.form.discount)
    if match.form.between and not np.isclose(match.form.decay, known, rtol=SHARE).any():
        return False
    return tells_apart(evidence, match)


def tells_apart(evidence: Evidence, match: Match) -> bool:
    """Whether the critic's values where the program acts are not all the same."""
    assert isinstance(match.form, Advantage)
    assert match.values is not None
    visited = np.unique(match.form.places(evidence)[0][evidence.present])
    return bool(np.ptp(match.values[visited]) > SHARE)


def tells_actions_apart(evidence: Evidence, match: Match, line: Timeline) -> bool:
    """Whether values Q(s, a) differ between the actions of some state: else they are a baseline."""
    assert match.values is not None
    visited = set(zip(evidence.state[line.present], evidence.action[line.present], strict=True))
    values: dict[int, set[float]] = {}
    for state, action in visited:
        value = round(float(match.values[state + evidence.states * action]), 6)
        values.setdefault(state, set()).add(value)
    return any(len(own) > 1 for own in values.values())


def overdetermined(evidence: Evidence, match: Match, line: Timeline) -> bool:
    """Whether values explain more weights than there are of them; r + γV(s') with V = 0 is r."""
    form, values = match.form, match.values
    assert isinstance(form, Advantage)
    told = form.decay > 0.0 or (values is not None and bool(np.abs(values).max() > SHARE))
    return told and spare_equations(evidence, line, form) >= _SPARE
