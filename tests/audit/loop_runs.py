"""Runs a training loop as the audit does, in a process of its own."""

from __future__ import annotations

from pathlib import Path

from eligibility.audit.reporting.report import AuditReport
from eligibility.audit.trainers.child import train_once
from eligibility.audit.trainers.verdict import report_of

# How most of the tests' loops begin.
LOADED = """
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

tok = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B")
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
adam = torch.optim.AdamW(model.parameters(), lr=1e-6)
"""


def audited(folder: Path, text: str) -> AuditReport:
    """The report, by the process that has the libraries loaded, which is small to fork from.

    The one that tests grows to a gigabyte, and each of the fifty branches of an audit would copy
    its page tables.
    """
    script = folder / "train.py"
    script.write_text(text, encoding="utf-8")
    record = train_once(script, script, (), 100.0, 4096, lambda done, expected: None)
    return report_of(record, "train.py")


def biasing(report: AuditReport) -> set[str]:
    """The conventions that have a bias."""
    return {convention.name for convention in report.conventions if convention.bias}
