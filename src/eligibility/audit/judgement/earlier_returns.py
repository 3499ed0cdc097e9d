"""A baseline of what earlier episodes of the batch earned, such as a moving average of returns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from eligibility.audit.arrays import Array
from eligibility.audit.judgement.advantage import Advantage
from eligibility.audit.judgement.audited_program import AuditedProgram
from eligibility.audit.judgement.credits import CREDITS
from eligibility.audit.judgement.critic import linear_columns
from eligibility.audit.judgement.entropy import entropy_columns
from eligibility.audit.judgement.evidence import Evidence
from eligibility.audit.judgement.explained import Explained, match_of
from eligibility.audit.judgement.match import explaining
from eligibility.audit.judgement.other_objectives import plain_forms
from eligibility.audit.judgement.timeline import Timeline, timeline

_MOST = 8  # episodes of a batch, each pair of which has a factor of its own


def with_earlier_returns(program: AuditedProgram, evidence: Evidence) -> Explained | None:
    """Returns of earlier episodes, each times some factor, subtracted from a later one's.

    They do not depend on what the later episode does, so the expected gradient stays as it is. A
    constant of each episode may come from earlier batches. The rest must be a composition without
    a fault.
    """
    line = timeline(evidence)
    if program.values != "no" or evidence.long or not 1 < line.episodes.max() <= _MOST:
        return None
    whole = next(credit for credit in CREDITS if credit.rule == "whole-episode-return")
    for credit in (CREDITS[0], whole):
        for form in plain_forms(program.constants, "no", credit):
            own = linear_columns(evidence, line, form)[0]
            earlier = list(_of_earlier_returns(evidence, line, form))
            columns = [own, *earlier, *entropy_columns(evidence, line, form.norm)]
            factors = explaining(evidence, columns, program.tolerance)
            if factors is None:
                continue
            baseline = np.tensordot(factors[1 : 1 + len(earlier)], earlier, 1)
            without = replace(
                evidence, ascent=evidence.ascent - baseline.reshape(evidence.ascent.shape)
            )
            match = match_of(program.untold, without)
            if match is not None and match.faultless:
                note = "minus a baseline of earlier episodes' returns"
                return Explained(replace(match, note=note, changed="baseline"), without)
    return None


def _of_earlier_returns(evidence: Evidence, line: Timeline, form: Advantage) -> Iterator[Array]:
    """[P * D] the gradient of each episode, times 1 and times each earlier episode's return."""
    returns = line.episode_return(form.discount)
    first = (line.time == 0) & line.present
    earned = [np.ones((evidence.paths, 1))]  # what batches before this one have left
    for number in range(int(line.episodes.max())):
        own = line.present & (line.segment == number)
        for each in earned:
            yield evidence.gradient(form.form.finished(each * own, line)).ravel()
        earned.append((returns * (first & own)).sum(axis=1, keepdims=True))
