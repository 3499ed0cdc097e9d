"""The discount that a program is compared with: given, measured, or a constant of its text."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from eligibility.audit.judgement.audited_program import AuditedProgram
from eligibility.audit.judgement.carried import RULE
from eligibility.audit.judgement.constants import GIVEN, MEASURED, ONE_STEP, Constants
from eligibility.audit.judgement.measured import Measured
from eligibility.audit.judgement.reading import Reading, read, told_by
from eligibility.audit.running.survey import Survey, has_critic

_SAME = 1e-7  # a measured number and a constant of the text that are the same
_NEAR = 3e-5  # the same where the credits are divided by a deviation, and slopes are differences
_DIGITS = 5
_NONE = 1e-6  # a discount below it is none
RIGHT = ("", "whole-episode-return")
_FROM_VALUES = 1e-6  # share of the weights that no reward moves, beyond which values may enter


def with_measured(program: AuditedProgram, measured: Measured | None) -> AuditedProgram:
    """The program with what was measured of the credit, and the constants that follow."""
    if program.constants.origin != GIVEN and _has_single_steps(program.survey):
        once = replace(program.constants, discounts=(1.0,), origin=ONE_STEP)
        program = replace(program, constants=once)
    if measured is None:
        return program
    readings = read(measured)
    constants = replace(program.constants, told=told_by(measured, readings))
    reading = readings[0] if readings else None
    program = replace(program, measured=measured, reading=reading, constants=constants)
    if reading is None or program.constants.origin == GIVEN:
        return program
    return replace(program, constants=_constants(program, measured, reading))


def _has_single_steps(survey: Survey) -> bool:
    """Whether every episode ends after its first step: no reward is discounted."""
    return all(
        step.terminated and not step.time
        for trace in survey.traces
        for step in trace.steps
        if step.executed
    )


def _constants(program: AuditedProgram, measured: Measured, reading: Reading) -> Constants:
    """γ from the powers in M; where a critic's values may enter, these are the powers of γλ."""
    known = program.constants
    same = _SAME if measured.kind == "linear" else _NEAR
    powers, dated = (_snapped(value, known, same) for value in (reading.discount, reading.dated))
    if np.isnan(powers) and dated == 1.0:
        return known
    size = np.abs(measured.credit)
    if (size > _NONE * size.max()).sum() == 1:  # one number has no powers
        return replace(known, discounts=tuple(dict.fromkeys((1.0, *known.discounts))))
    if np.isnan(powers):
        return replace(known, discounts=(dated,), origin=MEASURED)
    misplaced = reading.rule not in RIGHT or (known.told is not None and known.told.coupled)
    if misplaced:  # its powers may count something else
        several = tuple(dict.fromkeys((powers, dated, *known.discounts)))
        if reading.rule == RULE and has_critic(program.survey) and powers >= _NONE:
            return replace(known, discounts=several, product=powers, origin=MEASURED)
        return replace(known, discounts=several, origin=MEASURED)
    values = bool(np.abs(measured.offset).max() > _FROM_VALUES * np.abs(measured.credit).max())
    if not (values or has_critic(program.survey)):
        if powers < _NONE:
            return known
        discounts = dict.fromkeys((powers, dated)) if dated != 1.0 else (powers,)
        return replace(known, discounts=tuple(discounts), origin=MEASURED)
    above = [value for value in _rounded(known.discounts) if value > powers + _SAME]
    if powers < _NONE:
        return replace(known, discounts=tuple(above), product=0.0)
    # a product that is not a constant is two of them rather than one
    both = (powers, *above) if powers in known.discounts else (*above, powers)
    return replace(known, discounts=both, product=powers, origin=MEASURED)


def _snapped(value: float, known: Constants, same: float) -> float:
    """The constant of the text that a measured number is, up to rounding; else the number.

    A value measured next to a standard deviation is rounded to the numbers people write.
    """
    rounded = () if same == _SAME else (round(value, _DIGITS),)
    return next((own for own in (*known.discounts, *rounded) if abs(own - value) < same), value)


def _rounded(values: tuple[float, ...]) -> list[float]:
    """The values, and what they are in single precision: some programs keep them so."""
    return [
        number for value in values for number in dict.fromkeys((value, float(np.float32(value))))
    ]
