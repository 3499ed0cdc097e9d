"""Generalised advantages whose sum goes on where an episode ends, into the next one of its actor.

A_i = δ_i + γλ c_i A_j, where j is the actor's next decision, whichever episode it belongs to, and
δ_i = r_i + γ v_i − V(s_i). Loops over a buffer of steps compute this if they look at the ends of
episodes in v_i only, or at those by the problem and not at those by the time limit, or if they look
at the next step's end: `dones[t + 1]`, where `dones[t]` is what step t led to.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np

from eligibility.audit.arrays import Array
from eligibility.audit.judgement.evidence import Evidence
from eligibility.audit.judgement.timeline import Timeline

RULE = "return-carried-over-episodes"


class Carried(NamedTuple):
    """Where the sum goes on, and which values are in it.

    Attributes:
        stops: Whether an end by the problem stops the sum; one by the time limit does not, unless
            it is looked at late.
        cut: Behind which ends the value is left out: "terminated", "ended", "last" for one at the
            end of the batch, or "" for none.
        next: Of which state v_i is: where i led, or that of the actor's next decision; behind its
            last one where that led, or "reset": where an ended episode's actor starts again.
        dropped: Whether the last step of the batch has the advantage 0, as of a loop up to T − 1.
        late: Whether each decision looks at the end of the actor's next one; the last at its own.
        paid: Whether the value of where a time limit led is added to the reward.
    """

    stops: bool
    cut: str
    next: str
    dropped: bool = False
    late: bool = False
    paid: bool = False


_NEXT, _LED, _RESET = "next", "led", "reset"
_HOW = [(True, "terminated"), (False, "terminated"), (False, "ended"), (False, "")]
_FORMS = [
    *(Carried(*how, *rest) for how in _HOW for rest in product((_NEXT, _LED), (False, True))),
    *(Carried(False, "last", after) for after in (_NEXT, _LED)),
    *(Carried(False, cut, _RESET) for cut in ("", "terminated")),
    *(
        Carried(True, cut, after, late=True)
        for cut in ("terminated", "ended")
        for after in (_NEXT, _LED)
    ),
    *(Carried(True, "ended", after, late=True, paid=True) for after in (_NEXT, _LED)),
]
CARRIED = {str(form): form for form in _FORMS}


def carried_advantage(
    form: Carried, evidence: Evidence, line: Timeline, here: Array, there: Array, factors: Array
) -> Array:
    """[P, I] the advantages.

    Args:
        form: Which of them.
        evidence: The decisions.
        line: How they hang together.
        here: [P, I] V(s) of each.
        there: [P, I] V of where it led.
        factors: γ, and γλ.
    """
    following = line.following_of_actor
    last = following < 0
    rows = np.arange(len(here))[:, None]
    over = evidence.terminated | evidence.truncated
    behind = np.where(over, here[:, :1], there) if form.next == _RESET else there
    behind = there if form.next == _LED else np.where(last, behind, here[rows, following])
    ended = {
        "terminated": evidence.terminated,
        "ended": over,
        "last": over & last,
        "": np.zeros_like(evidence.terminated),
    }[form.cut]
    ended = np.where(last, ended, ended[rows, following]) if form.late else ended
    reward = evidence.reward
    if form.paid:
        limit = evidence.truncated & ~evidence.terminated
        reward = reward + factors[0] * np.where(limit, there, 0.0)
    delta = reward + factors[0] * np.where(ended, 0.0, behind) - here
    delta = np.where(last & form.dropped, 0.0, delta) * line.present
    stopped = (ended if form.late else evidence.terminated) & form.stops
    return line.chained(delta, np.where(stopped, 0.0, factors[1]))
