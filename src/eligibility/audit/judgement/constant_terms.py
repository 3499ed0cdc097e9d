"""Terms of the parameters alone, as an L2 penalty, that a program adds to its loss.

Their gradient is the same on every path, so that one vector is unknown; without it the program is
judged like any other.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from eligibility.audit.judgement.constants import Constants
from eligibility.audit.judgement.critic import linear_columns
from eligibility.audit.judgement.end_rewards import plain_forms
from eligibility.audit.judgement.entropy import entropy_columns
from eligibility.audit.judgement.evidence import Evidence
from eligibility.audit.judgement.match import Match, explaining
from eligibility.audit.judgement.matching import find_match
from eligibility.audit.judgement.timeline import timeline


def with_constant_term(
    evidence: Evidence, constants: Constants, tolerance: float
) -> tuple[Match, Evidence] | None:
    """The composition that explains every path next to such a term, and the paths without it.

    Only where the credit was measured, from which such a term drops out: what an earlier batch adds
    to the second update is the same on every path of it, too.
    """
    if evidence.long or constants.told is None:
        return None
    paths, directions = evidence.ascent.shape
    same = np.tile(np.eye(directions), (paths, 1))
    line = timeline(evidence)
    for form in plain_forms(constants, "no"):
        own = linear_columns(evidence, line, form)[0]
        columns = [*same.T, own, *entropy_columns(evidence, line, form.norm)]
        factors = explaining(evidence, columns, tolerance)
        if factors is None:
            continue
        beside = factors[:directions]
        without = replace(evidence, ascent=evidence.ascent - beside)
        match = find_match(without, constants, tolerance, "no")
        if match is not None and match.faultless:
            note = "next to a term of the parameters alone"
            named = replace(match, note=note, changed="parameter-penalty", beside=beside)
            return named, without
    return None
