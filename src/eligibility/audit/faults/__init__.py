"""The faults and the choices that a report can name, one file a family."""

from __future__ import annotations

from eligibility.audit.faults import credit, failures, language, scoring, updates, values
from eligibility.audit.faults.choices import CHOICES
from eligibility.audit.faults.fault import Fault

__all__ = ["CHOICES", "FAULTS", "Fault"]

FAULTS = {
    fault.id: fault
    for family in (credit, scoring, values, updates, language, failures)
    for fault in family.FAULTS
}
