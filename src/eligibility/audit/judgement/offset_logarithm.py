"""Programs that score ln(π + ε) in place of ln π, so that the logarithm of 0 stays finite.

The gradient of ln(π + ε) is π/(π + ε) times the eligibility. The factors a_i of the measured
credit's rows tell: 1/a_i = c (1 + ε/π_i) is linear in 1/π_i, whatever else the weights are made of.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from eligibility.audit.arrays import Array
from eligibility.audit.judgement.audited_program import AuditedProgram
from eligibility.audit.judgement.evidence import Evidence
from eligibility.audit.judgement.explained import Explained, match_of
from eligibility.audit.judgement.match import with_offset

_NAME = "offset-logarithm"
_OFF = 1e-2  # share of the effect of ε that the straight line may leave
_LARGEST = 0.1  # ε; ln(π + ε) of a large one is π itself, whose gradient reinforces likely actions


def with_offset_logarithm(program: AuditedProgram, evidence: Evidence) -> Explained | None:
    """A constant added to each probability: it makes the eligibilities of rare actions smaller."""
    offset = _offset(program)
    if offset is None:
        return None
    seen = with_offset(evidence, offset)
    told = program.constants.told
    if told is not None:  # its credit has the factors
        told = replace(told, path=None, credit=None)
    match = match_of(replace(program, constants=replace(program.constants, told=told)), seen)
    if match is None:
        return None
    note = f"scored by ln(π + {offset:.2g}) in place of ln π"
    named = replace(match, note=note, changed=_NAME, offset=offset)
    return Explained(named, evidence)


def _offset(program: AuditedProgram) -> float | None:
    """ε; None if the rows' factors do not follow the probabilities like that."""
    measured, reading = program.measured, program.reading
    if measured is None or reading is None:
        return None
    path, present = measured.evidence, measured.evidence.present[0]
    inverse = np.exp(-path.log_prob[0, present])
    if not 2 < len(inverse) == len(reading.factor) or not reading.factor.all():
        return None
    change = float(np.ptp(inverse))
    columns = np.stack([np.ones(len(inverse)), inverse], axis=1)
    dates = (1.0, reading.discount) if reading.discount > 0.0 else (1.0,)
    for dated in dates:  # without the factor γ^t, and with it
        factor: Array = reading.factor / dated ** path.time[0, present]
        found = np.linalg.lstsq(columns, 1.0 / factor, rcond=None)[0]
        offset = float(found[1] / found[0])
        left = float(np.abs(columns @ found * factor - 1.0).max())
        effect = offset * change
        if offset < _LARGEST and effect > program.tolerance and left <= _OFF * effect:
            return offset
    return None
