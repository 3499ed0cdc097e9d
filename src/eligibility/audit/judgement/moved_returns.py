"""Returns in the wrong places, beside a critic's values that are unknown.

With a critic the return is A + V(s), where A is the generalised advantage. What moves it, in the
episode or in the rollout, and subtracts V(s) from it then, has weights that are affine in V.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product

import numpy as np

from eligibility.audit.arrays import Array
from eligibility.audit.judgement.catalogue import CREDITS, Candidate
from eligibility.audit.judgement.constants import Constants
from eligibility.audit.judgement.critic import Advantage
from eligibility.audit.judgement.evidence import Evidence
from eligibility.audit.judgement.timeline import Timeline

_Move = Callable[[Timeline, Array, float], Array]
_MOVES: tuple[tuple[str, _Move], ...] = (
    ("shifted-rewards", lambda line, values, g: line.shifted(values, 1)),
    ("shifted-rewards", lambda line, values, g: line.shifted(values, -1)),
    ("shifted-rewards", lambda line, values, g: line.shifted_in_batch(values)),
    ("shifted-rewards", lambda line, values, g: line.shifted_in_rollout(values, g)),
    ("reversed-returns", lambda line, values, g: line.mirrored(values)),
    ("reversed-returns", lambda line, values, g: line.mirrored_in_rollout(values, g)),
)


def moved_returns(
    evidence: Evidence, line: Timeline, constants: Constants, tolerance: float
) -> str:
    """The rule of the first such program that explains every path; empty if there is none."""
    if evidence.long:
        return ""
    target = evidence.ascent.ravel()
    pairs = [(g, decay) for g in constants.discounts for decay in constants.decays_at(g)]
    choices = product(_MOVES, pairs, (False, True), (False, True))
    for (rule, move), (discount, decay), dated, mean in choices:
        plain = Candidate(CREDITS[0], discount, False, "", "batch", "", "")
        outside: Array = np.asarray(discount**line.time if dated else np.ones(line.time.shape))
        if mean:
            outside = outside / np.maximum(line.steps, 1)[:, None]
        gradient = partial(_gradient, evidence, line, Advantage(plain, "", decay), move, outside)
        size = Advantage(plain, "", decay).places(evidence)[2]
        first = gradient(np.zeros(size))
        columns = np.array([first, *(gradient(unit) - first for unit in np.eye(size))]).T
        factors, _, rank, _ = np.linalg.lstsq(columns, target, rcond=1e-11)
        left = float(np.linalg.norm(target - columns @ factors))
        enough = np.linalg.matrix_rank(evidence.ascent) + evidence.paths > 2 * rank
        if factors[0] and enough and left < tolerance * float(np.linalg.norm(target)):
            return rule
    return ""


def _gradient(
    evidence: Evidence, line: Timeline, advantage: Advantage, move: _Move, outside: Array,
    values: Array,
) -> Array:  # fmt: skip
    """[P · D] the gradients for ``values``, with a factor ``outside`` on each weight."""
    here = values[advantage.places(evidence)[0]] * line.present
    returns = advantage.weights(evidence, line, values) + here
    weights = (move(line, returns, advantage.discount) - here) * outside * line.present
    flat: Array = np.einsum("pi,pid->pd", weights, evidence.eligibility).ravel()
    return flat
