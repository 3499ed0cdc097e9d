"""The faults and the choices that a report can name, one file a family."""

from __future__ import annotations

from eligibility.audit.faults import choices, credit, failures, language, scoring, updates, values
from eligibility.audit.faults.fault import Choice, Fault

__all__ = ["CHOICES", "FAULTS", "Choice", "Fault"]

FAULTS = {
    fault.id: fault
    for family in (credit, scoring, values, updates, language, failures)
    for fault in family.FAULTS
}
CHOICES = {choice.id: choice for choice in choices.CHOICES}
