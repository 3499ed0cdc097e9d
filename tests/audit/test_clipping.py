"""Gradients that are clipped before the step: by torch's functions, or by hooks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.audit.writing import audited

BACKWARD = "    loss.backward()\n"
OPTIMIZER = "opt = torch.optim.Adam("


def hooked(function: str) -> tuple[str, str]:
    """Each parameter's gradient goes through a function."""
    hooks = f"for p in net.parameters():\n    p.register_hook(lambda g: {function})\n"
    return OPTIMIZER, hooks + OPTIMIZER


@pytest.mark.parametrize(
    "change",
    [
        (BACKWARD, f"{BACKWARD}    torch.nn.utils.clip_grad_norm_(net.parameters(), 1e-3)\n"),
        (BACKWARD, f"{BACKWARD}    torch.nn.utils.clip_grad_value_(net.parameters(), 1e-3)\n"),
        hooked("g.clamp(-1e-3, 1e-3)"),
        hooked("g / max(1.0, float(g.norm()) / 1e-3)"),
    ],
)
def test_a_clipped_gradient_is_judged_as_it_was_before(
    change: tuple[str, str], tmp_path: Path
) -> None:
    report = audited(tmp_path, change)
    assert report.verdict == "unbiased", report.text()
    assert [choice.name for choice in report.conventions] == ["gradient-clipping"]


def test_any_other_hook_counts(tmp_path: Path) -> None:
    """What a hook does to small gradients as well is part of the program."""
    assert audited(tmp_path, hooked("print(g.norm())")).verdict == "unbiased"
    assert audited(tmp_path, hooked("-g")).verdict == "wrong-sign"
    assert "constant-scale" in [
        each.name for each in audited(tmp_path, hooked("2 * g")).conventions
    ]
